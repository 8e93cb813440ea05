"""From the settings to the re-selection of stage 1: which batches it narrows, and which rows of the task judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from endtask.errors import InputError
from endtask.models.network import Network
from endtask.objectives.by_kind import task_objective
from endtask.objectives.masking import Masking
from endtask.objectives.stream import TextStream
from endtask.seeds import derive
from endtask.settings import BatchSize, ObjectiveSettings, Settings
from endtask.task import Task
from endtask.task.targets import targets
from endtask.text.packed import PackedTexts
from endtask.train.joint import masking_of, stage_1_head
from endtask.train.loop import Phase
from endtask.train.meta_folds import Folds, part_numbers
from endtask.train.meta_rule import folds_of_stage_1
from endtask.train.reselect import HeldOutRows, Reselection
from endtask.train.reselect_scores import HelpScores, Judging


def reselection_of(phase: Phase, task: Task, packed: Path, settings: Settings) -> Reselection | None:
    """What chooses the external texts anew, if asked for; the batches are left as the first steps want them."""
    asked = settings.train.reselect
    if asked.every is None:
        return None
    external = [one.reads == "selection" for one in _used(phase, settings)]
    streams = [stream for stream, is_external in zip(_streams(phase), external, strict=True) if is_external]
    if not streams:
        raise InputError("there is no external text to choose from", key="train.reselect.every")
    own = _masking(packed, settings)
    masking = replace(own, probability=asked.mask_probability or own.probability)
    scores = HelpScores(
        phase.network,
        phase.place,
        streams[0].texts,
        _judging(task, packed, phase.network, asked.targets),
        masking,
        asked,
        int(_most_tokens(settings) * min(1.0, own.probability / masking.probability)),
        stage_1_head(settings),
    )
    held_out = _held_out(phase, task, settings)
    seed = derive(settings.pretrain_seed, "reselect")
    return Reselection(scores, streams, held_out, last_step=phase.steps, seed=seed)


def _held_out(phase: Phase, task: Task, settings: Settings) -> HeldOutRows:
    asked = settings.train.reselect
    if asked.targets == "dev":
        return HeldOutRows()
    known = folds_of_stage_1(task, settings)
    if known is not None:
        return HeldOutRows(known)
    readers = [one.reads_train for one in _used(phase, settings)]
    seed = derive(settings.pretrain_seed, "reselect folds")
    assert asked.every is not None
    folds = Folds(part_numbers(task.train, asked.folds, seed, key="train.reselect.targets"), asked.every)
    return HeldOutRows(folds, [stream for stream, reads in zip(_streams(phase), readers, strict=True) if reads])


def _used(phase: Phase, settings: Settings) -> list[ObjectiveSettings]:
    return [settings.used_objectives[name] for name in phase.objectives]


def _streams(phase: Phase) -> list[TextStream]:
    return [objective.stream for objective in phase.objectives.values()]  # type: ignore[attr-defined]


def _judging(task: Task, packed: Path, network: Network, which: str) -> Judging:
    split = "dev" if which == "dev" else "train"
    texts = PackedTexts(packed / ("dev" if which == "dev" else "internal"))
    stream = TextStream("judging", texts, network, batch_size=BatchSize.parse("32"), seed=0)
    judges = np.ones(len(texts), dtype=bool)
    if task.kind in ("text", "pair"):  # what train has no example of, no head can learn
        judges = targets(task, split)[texts.examples] < len(task.labels)
    return Judging(task_objective(task, "judging", stream, split=split), judges)


def _masking(packed: Path, settings: Settings) -> Masking:
    used = settings.used_objectives.values()
    own = next(one.mask_probability for one in used if one.kind == "mlm" and one.reads == "selection")
    usual = masking_of(packed, settings)
    return usual if own is None else replace(usual, probability=own)


def _most_tokens(settings: Settings) -> int:
    """As many as a batch of training has: scoring, which hides no more tokens at once, then never takes more memory."""
    size = settings.train.batch_size
    return size.amount if size.unit == "tokens" else size.amount * settings.train.max_length
