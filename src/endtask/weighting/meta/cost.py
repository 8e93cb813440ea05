"""What learned weights cost beside the objectives: the readings of held-out task texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from endtask.config import BatchSize, Settings
from endtask.config.data_usage import LEARNED_WEIGHTS
from endtask.encoders.flops import training_flops
from endtask.encoders.network import Network
from endtask.objectives.stream import TextStream
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.budget_plan import StepCost
from endtask.training.phase_runner import TrainState

_SAMPLED_BATCHES = 4
_FORWARD = 1 / 3  # of what training on as much costs


@dataclass(frozen=True)
class HeldOutCost:
    """One look at held-out data, from texts of mean length; `trained_tokens` counts a forward pass as a third."""

    tokens: float
    trained_tokens: float
    matmul_flops: float


def held_out_cost(network: Network, packed: Path, settings: Settings, *, groups: int) -> HeldOutCost:
    """The cost of a look; `groups` of train stay together in its parts."""
    meta = settings.pretrain.meta
    train = PackedTexts(packed / "task")
    if meta.split == "dev":
        validation = PackedTexts(packed / "dev")
        held_out, rest = len(validation), len(train)
    else:
        validation, held_out = train, max(1, len(train) // min(meta.folds, groups))
        rest = max(1, len(train) - held_out)
    tokens, flops = _read(network, validation, min(meta.gradient_batch, held_out))
    if meta.same_head:
        return HeldOutCost(tokens, tokens, flops)
    fit_tokens, fit_flops = _read(network, train, min(meta.fit_batch, rest))
    return HeldOutCost(tokens + fit_tokens, tokens + _FORWARD * fit_tokens, flops + _FORWARD * fit_flops)


def with_held_out(cost: StepCost, look: HeldOutCost | None, parameters: int, settings: Settings) -> StepCost:
    """The cost of a step with its part of the looks; seconds were measured with them."""
    if look is None:
        return cost
    every = settings.pretrain.meta.every
    flops = cost.flops + training_flops(parameters, look.trained_tokens / every)
    return replace(cost, tokens=cost.tokens + look.tokens / every, flops=flops)


def count_held_out(memory: TrainState, look: HeldOutCost | None, settings: Settings) -> float:
    """Add the looks of all steps to the counts; returns the tokens that they trained on."""
    if look is None:
        return 0.0
    looks: int = -(-memory["steps"] // settings.pretrain.meta.every)
    tokens, flops = round(looks * look.tokens), looks * look.matmul_flops
    memory["tokens"] += tokens
    memory["padded_tokens"] += tokens
    memory["matmul_flops"] += flops
    memory["objectives"][LEARNED_WEIGHTS] = {"steps": looks, "tokens": tokens, "matmul_flops": flops}
    return looks * look.trained_tokens


def _read(network: Network, packed: PackedTexts, texts: int) -> tuple[float, float]:
    """Tokens and matrix products of training on so many of them."""
    size = BatchSize.parse(texts)
    stream = TextStream("meta cost", packed, network, batch_size=size, seed=0)
    batches = [stream.batch(number) for number in range(_SAMPLED_BATCHES)]
    read = sum(batch.texts for batch in batches)
    flops = sum(network.training_flops(batch, texts=batch.texts) for batch in batches)
    return size.amount * float(packed.lengths.mean()), size.amount * flops / read
