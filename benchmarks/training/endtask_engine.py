"""Measure endtask: the lean encoder in its training loop, with the default settings.

Batches of full sequences have as many rows as the peers', batches of task text as many tokens. Like the peers, the loop
has no progress bar, curves or checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

from transformers import PreTrainedTokenizerFast

from benchmarks.training.cases import LENGTH, SIZES, Case, Row
from benchmarks.training.inputs import LEARNING_RATE, MASKED_SHARE, SEED, Setup
from benchmarks.training.peers import parameters_of
from endtask.config import BatchSize, ModelSettings, PretrainSettings, Settings
from endtask.encoders.network import Network, build_network
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.training.device import choose_device_context, move
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.pretrain_phase import phase_of
from endtask.weighting.equal import Equal

NAME = "text"


def train_endtask(case: Case, setup: Setup) -> Row:
    """Train and return times and counts."""
    clock = setup.clock(case)
    phase = replace(_phase(case, setup), steps=clock.total)
    counts = {"tokens": 0, "padded_tokens": 0, "flops": 0.0}
    loss = None
    for record in train(phase, build_optimizer(phase)):
        if clock.is_timing:
            counts["tokens"] += record.tokens
            counts["padded_tokens"] += record.padded_tokens
            counts["flops"] += record.flops
        loss = record.losses[f"{NAME}/mlm"]
        clock.tick()
    assert loss is not None
    return {
        **clock.statistics(),
        **counts,
        "attention": phase.network.backend,
        "parameters": parameters_of(phase.network),
        "loss": round(loss.item(), 4),
    }


def _phase(case: Case, setup: Setup) -> Phase:
    """Return the phase of masked LM, without the number of steps."""
    settings = _settings(case)
    context = choose_device_context(settings)
    tokenizer = setup.tokenizer(case)
    network = move(_network(tokenizer, settings), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    stream = TextStream(
        NAME,
        setup.packed(case),
        network,
        batch_size=settings.pretrain.batch_size,
        seed=SEED,
        masking=Masking(MASKED_SHARE, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids)),
    )
    return phase_of(network, {NAME: MaskedLM(NAME, stream)}, Equal(NAME), settings, context)


def _settings(case: Case) -> Settings:
    model = ModelSettings(**SIZES[case.size].dimensions(gated=True))
    batch = str(case.rows) if case.text == "full" else f"{case.rows * LENGTH}tok"
    train_settings = PretrainSettings(
        batch_size=BatchSize.parse(batch),
        max_length=LENGTH,
        mask_probability=MASKED_SHARE,
        learning_rate=LEARNING_RATE,
    )
    return Settings(device=case.device, precision=case.precision, seed=SEED, model=model, pretrain=train_settings)


def _network(tokenizer: PreTrainedTokenizerFast, settings: Settings) -> Network:
    special_ids = {"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}
    return build_network(
        settings.model, vocabulary=len(tokenizer), special_ids=special_ids, labels=("no", "yes"), seed=SEED
    )
