"""Ours: the lean encoder in endtask's own loop, three objectives, with equal or learned weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.training.bert import parameters_of
from benchmarks.training.cases import SIZES
from benchmarks.weighting.cases import CLASSES, LENGTH, OBJECTIVES, RULES, Case, Row
from benchmarks.weighting.inputs import LEARNING_RATE, MASKED_SHARE, SEED, SPECIAL, TEXTS, Bench, labels
from endtask.config import BatchSize, ModelSettings, PretrainSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network, build_network
from endtask.objectives.base import BuiltObjective
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification
from endtask.training.device import choose_device_context, move
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.pretrain import phase_of
from endtask.weighting.equal import Equal
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.folds import FOLD_STEPS, Folds
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes
from endtask.weighting.meta.rule import Meta, TextHeldOut

_FOLDS = 16
"""So many parts that the end task's batches hardly shrink: all engines read the same batches."""


def ours(case: Case, bench: Bench) -> Row:
    """Train and count."""
    clock = bench.clock(case)
    phase = replace(_phase(case, bench), steps=clock.total)
    tokens = 0
    for record in train(phase, build_optimizer(phase)):
        tokens += record.tokens if clock.is_timing else 0
        losses = record.losses
        clock.tick()
    weights = {name: round(value.item(), 4) for name, value in losses.items() if name.startswith("weight/")}
    return {
        **clock.statistics(),
        "tokens": tokens,
        "attention": phase.network.backend,
        "parameters": parameters_of(phase.network),
        "loss": round(losses["tapt/mlm"].item(), 4),
        **weights,
    }


def _phase(case: Case, bench: Bench) -> Phase:
    settings = _settings(case)
    context = choose_device_context(settings)
    network = move(_network(settings, case.vocabulary), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    objectives: dict[str, BuiltObjective] = {
        name: MaskedLM(name, _stream(name, case.rows, case, network, bench, masked=True)) for name in OBJECTIVES[1:]
    }
    task = Classification("task", _stream("task", case.rows, case, network, bench, masked=False), labels())
    rule = RULES[case.engine]
    weighting = Equal(*OBJECTIVES) if rule is None else _meta(rule, case, network, bench, context)
    return phase_of(network, {"task": task, **objectives}, weighting, settings, context)


def _meta(rule: MetaConfig, case: Case, network: Network, bench: Bench, context: DeviceContext) -> Meta:
    """The rule over all three; the end task's own batches stay whole, as they are with equal weights."""
    stream = _stream("task", case.held_out, case, network, bench, masked=False)
    answered = Classification("task", stream, labels())
    sizes = rule.model_copy(update={"fit_batch": case.held_out, "gradient_batch": case.held_out})
    folds = Folds(np.arange(TEXTS) % _FOLDS, FOLD_STEPS)
    source = TextHeldOut(answered, answered, Classes(CLASSES), folds=folds, settings=sizes, seed=SEED)
    gradient = HeldOutGradient(network, source, settings=sizes, context=context, seed=SEED)
    return Meta(OBJECTIVES, gradient, settings=sizes, device=context.device)


def _stream(name: str, rows: int, case: Case, network: Network, bench: Bench, *, masked: bool) -> TextStream:
    masking = Masking(MASKED_SHARE, SPECIAL["mask"], case.vocabulary, tuple(SPECIAL.values()))
    return TextStream(
        name,
        bench.texts(name, case.vocabulary),
        network,
        batch_size=BatchSize.parse(str(rows)),
        seed=SEED,
        masking=masking if masked else None,
    )


def _settings(case: Case) -> Settings:
    size = SIZES[case.size]
    model = ModelSettings(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.gated_width,
    )
    batch = BatchSize.parse(str(case.rows))
    train_settings = PretrainSettings(batch_size=batch, max_length=LENGTH, learning_rate=LEARNING_RATE)
    return Settings(device=case.device, seed=SEED, model=model, pretrain=train_settings)


def _network(settings: Settings, vocabulary: int) -> Network:
    return build_network(
        settings.model,
        vocabulary=vocabulary,
        special_ids={name: SPECIAL[name] for name in ("pad", "cls", "sep")},
        labels=tuple(f"class {number}" for number in range(CLASSES)),
        seed=SEED,
    )
