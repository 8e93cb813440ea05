"""What learned weights cost in addition to the objectives: passes over held-out task texts."""

from __future__ import annotations

from endtask.config import BatchSize
from endtask.encoders.network import Network
from endtask.objectives.stream import TextStream
from endtask.tokenization.packed_texts import PackedTexts
from endtask.weighting.base import ExtraCost, WeightingContext
from endtask.weighting.meta.folds import groups_in
from endtask.weighting.meta.part import LEARNED_WEIGHTS, MetaConfig

_SAMPLED_BATCHES = 4
_FORWARD = 1 / 3  # of the cost of training on as much


def held_out_cost(run: WeightingContext, config: MetaConfig) -> ExtraCost:
    """Return the cost of one weight update, from texts of mean length."""
    train = PackedTexts(run.packed / "task")
    if config.split == "dev":
        validation = PackedTexts(run.packed / "dev")
        held_out, rest = len(validation), len(train)
    else:
        validation, held_out = train, max(1, len(train) // min(config.folds, groups_in(run.task.train)))
        rest = max(1, len(train) - held_out)
    tokens, flops = _pass_cost(run.network, validation, min(config.gradient_batch, held_out))
    if config.same_head:
        return ExtraCost(LEARNED_WEIGHTS, config.every, tokens, tokens, flops)
    fit_tokens, fit_flops = _pass_cost(run.network, train, min(config.fit_batch, rest))
    return ExtraCost(
        LEARNED_WEIGHTS,
        config.every,
        tokens + fit_tokens,
        tokens + _FORWARD * fit_tokens,
        flops + _FORWARD * fit_flops,
    )


def _pass_cost(network: Network, packed: PackedTexts, texts: int) -> tuple[float, float]:
    """Return tokens and matrix products of training on so many texts."""
    size = BatchSize.parse(texts)
    stream = TextStream("meta cost", packed, network, batch_size=size, seed=0)
    batches = [stream.batch(number) for number in range(_SAMPLED_BATCHES)]
    read = sum(batch.texts for batch in batches)
    flops = sum(network.training_flops(batch, texts=batch.texts) for batch in batches)
    return size.amount * float(packed.lengths.mean()), size.amount * flops / read
