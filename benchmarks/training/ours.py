"""Ours: the lean encoder in endtask's own loop, with its default settings.

Full sequences come in batches of as many rows as the peers', task text in batches of as many tokens. What the peers do
not do either (progress bar, curves, checkpoints) is left out.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.training.cases import LENGTH, SIZES, Case, Row
from benchmarks.training.inputs import LEARNING_RATE, MASKED_SHARE, SEED, Bench
from benchmarks.training.peers import parameters_of
from endtask.config import BatchSize, ModelSettings, PretrainSettings, Settings
from endtask.encoders.network import Network, build_network
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.training.device import choose_device_context, move
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.pretrain import phase_of
from endtask.weighting.equal import Equal

NAME = "text"


def ours(case: Case, bench: Bench) -> Row:
    """Train and count."""
    clock = bench.clock(case)
    phase = replace(_phase(case, bench), steps=clock.total)
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


def _phase(case: Case, bench: Bench) -> Phase:
    """Masked language modelling alone; the number of steps is put in later."""
    settings = _settings(case)
    context = choose_device_context(settings)
    network = move(_network(case, bench, settings), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    stream = TextStream(
        NAME,
        bench.packed(case),
        network,
        batch_size=settings.pretrain.batch_size,
        seed=SEED,
        masking=_masking(case, bench),
    )
    return phase_of(network, {NAME: MaskedLM(NAME, stream)}, Equal(NAME), settings, context)


def _settings(case: Case) -> Settings:
    size = SIZES[case.size]
    model = ModelSettings(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.gated_width,
    )
    batch = str(case.rows) if case.text == "full" else f"{case.rows * LENGTH}tok"
    train_settings = PretrainSettings(
        batch_size=BatchSize.parse(batch),
        max_length=LENGTH,
        mask_probability=MASKED_SHARE,
        learning_rate=LEARNING_RATE,
    )
    return Settings(device=case.device, seed=SEED, model=model, pretrain=train_settings)


def _network(case: Case, bench: Bench, settings: Settings) -> Network:
    tokenizer = bench.tokenizer(case)
    special_ids = {"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}
    return build_network(
        settings.model, vocabulary=len(tokenizer), special_ids=special_ids, labels=("no", "yes"), seed=SEED
    )


def _masking(case: Case, bench: Bench) -> Masking:
    tokenizer = bench.tokenizer(case)
    return Masking(MASKED_SHARE, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids))
