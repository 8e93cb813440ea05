"""The cases, and endtask's measurements: the lean encoder, three objectives, equal or learned weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.cases import SIZES
from benchmarks.training.inputs import StepClock
from benchmarks.training.peers import parameters_of
from benchmarks.training.prepare import write_rows
from endtask.config import BatchSize, ModelSettings, PretrainSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network, build_network
from endtask.objectives.base import BuiltObjective
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import choose_device_context, move
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.pretrain_phase import phase_of
from endtask.weighting.equal import Equal
from endtask.weighting.folds import FOLD_STEPS, Folds
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes
from endtask.weighting.meta.rule import Meta, TextHeldOut

Device = Literal["cuda", "cpu"]
Row = dict[str, Any]

LENGTH = 128
VOCABULARY = 30_522
CLASSES = 6
OBJECTIVES = ("task", "tapt", "dapt")
"""The end task, and masked LM on two kinds of text."""

SEED = 0
TEXTS = 4096
SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
MASKED_SHARE = 0.15
LEARNING_RATE = 1e-4
_FOLDS = 16
"""With so many folds the end task's batches hardly shrink, so that all engines read nearly the same batches."""

EQUAL, META, DEFAULT, PAPER, AUTHORS = "equal", "meta", "meta default", "meta paper", "authors' way"
RULES: dict[str, MetaConfig | None] = {
    EQUAL: None,
    META: MetaConfig(every=1),
    DEFAULT: MetaConfig(),
    PAPER: MetaConfig(every=1, head="adamw", parameters="all", floor=0.0),
}
"""The settings of endtask's engines; None: equal weights."""


@dataclass(frozen=True)
class Case:
    """A measurement: batches of `rows` texts of 128 tokens for each objective, `held_out` texts twice for META."""

    engine: str
    size: str
    rows: int
    held_out: int
    device: Device
    repeat: int = 1
    vocabulary: int = VOCABULARY


def plan(engines: list[str], size: str, rows: int, held_out: int, device: Device, repeats: int) -> list[Case]:
    """Return the cases; engines alternate, so that a warm machine slows all of them. The slow authors' code runs once."""
    return [
        Case(engine, size, rows, held_out, device, repeat)
        for repeat in range(1, repeats + 1)
        for engine in engines
        if engine != AUTHORS or repeat == 1
    ]


@dataclass(frozen=True)
class Setup:
    """The scratch folder, and the number of steps."""

    scratch: Path
    warmup: int
    steps: int

    def clock(self, case: Case) -> StepClock:
        """Return a clock for the steps of a case."""
        import torch

        return StepClock(torch.device(case.device), self.warmup, self.steps)

    def texts(self, name: str, vocabulary: int) -> PackedTexts:
        """Return rows of random tokens between [CLS] and [SEP]."""
        folder = self.scratch / f"{name}-{vocabulary}"
        if (folder / "shape.json").exists():
            return PackedTexts(folder)
        rows = generator(SEED, "weighting benchmark", name).integers(len(SPECIAL), vocabulary, (TEXTS, LENGTH))
        rows[:, 0], rows[:, -1] = SPECIAL["cls"], SPECIAL["sep"]
        return write_rows(rows, folder)


def labels() -> NDArray[np.int64]:
    """Return a random class for every text."""
    return generator(SEED, "weighting benchmark", "labels").integers(0, CLASSES, TEXTS)


def train_endtask(case: Case, setup: Setup) -> Row:
    """Train and return times and counts."""
    clock = setup.clock(case)
    phase = replace(_phase(case, setup), steps=clock.total)
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


def _phase(case: Case, setup: Setup) -> Phase:
    settings = _settings(case)
    context = choose_device_context(settings)
    network = move(_network(settings, case.vocabulary), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    objectives: dict[str, BuiltObjective] = {
        name: MaskedLM(name, _stream(name, case.rows, case, network, setup, masked=True)) for name in OBJECTIVES[1:]
    }
    task = Classification("task", _stream("task", case.rows, case, network, setup, masked=False), labels())
    rule = RULES[case.engine]
    weighting = Equal(*OBJECTIVES) if rule is None else _meta(rule, case, network, setup, context)
    return phase_of(network, {"task": task, **objectives}, weighting, settings, context)


def _meta(rule: MetaConfig, case: Case, network: Network, setup: Setup, context: DeviceContext) -> Meta:
    """Return learned weights of all three objectives; the end task's batches are as large as with equal weights."""
    stream = _stream("task", case.held_out, case, network, setup, masked=False)
    answered = Classification("task", stream, labels())
    sizes = rule.model_copy(update={"fit_batch": case.held_out, "gradient_batch": case.held_out})
    folds = Folds(np.arange(TEXTS) % _FOLDS, FOLD_STEPS)
    source = TextHeldOut(answered, answered, Classes(CLASSES), folds=folds, settings=sizes, seed=SEED)
    gradient = HeldOutGradient(network, source, settings=sizes, context=context, seed=SEED)
    return Meta(OBJECTIVES, gradient, settings=sizes, device=context.device)


def _stream(name: str, rows: int, case: Case, network: Network, setup: Setup, *, masked: bool) -> TextStream:
    masking = Masking(MASKED_SHARE, SPECIAL["mask"], case.vocabulary, tuple(SPECIAL.values()))
    return TextStream(
        name,
        setup.texts(name, case.vocabulary),
        network,
        batch_size=BatchSize.parse(str(rows)),
        seed=SEED,
        masking=masking if masked else None,
    )


def _settings(case: Case) -> Settings:
    model = ModelSettings(**SIZES[case.size].dimensions(gated=True))
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
