"""From the settings to the learned weights of pre-training: which task data is held out, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.config import BatchSize, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.weighting.meta.folds import Folds, folds_of
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes, HeadTask, LabelSets, Scores
from endtask.weighting.meta.rule import Meta
from endtask.weighting.meta.texts import TextHeldOut


def pretrain_folds(task: Task, settings: Settings, steps: int | None = None) -> Folds | None:
    """The parts of train that are held out in turn; None where weights are not learned, or by dev."""
    train = settings.pretrain
    if not train.weighs_by_folds:
        return None
    return folds_of(task.train, train.meta, derive(settings.pretrain_seed, "folds"), steps)


def few_validation_rows(task: Task, settings: Settings) -> str | None:
    """A warning where learned weights are judged by fewer rows than the held-out gradient is to be taken from."""
    if settings.skip_pretraining or settings.pretrain.weighting != "meta":
        return None
    asked, folds = settings.pretrain.meta.gradient_batch, pretrain_folds(task, settings)
    rows = len(task.splits.get("dev", ())) if folds is None else int(np.bincount(folds.numbers).min())
    if rows >= asked:
        return None
    fewer = f"{rows} {'row' if rows == 1 else 'rows'}, fewer than pretrain.meta.gradient_batch ({asked})"
    if folds is None:
        return f"dev, which judges learned weights, has {fewer}; pretrain.meta.split=folds lets parts of train judge"
    return f"the parts of train that judge learned weights have {fewer}; fewer pretrain.meta.folds make them larger"


def left_out_of_batches(folds: Folds, settings: Settings) -> Callable[[int], NDArray[np.bool_]]:
    """What a `TextStream` of the end task must leave out of each of its batches, of which a step may have several."""
    per_step = settings.pretrain.gradient_accumulation_steps
    return lambda batch: folds.held_out(batch // per_step)


def meta_rule(
    objectives: Sequence[str],
    end_task: str,
    task: Task,
    packed: Path,
    network: Network,
    settings: Settings,
    context: DeviceContext,
    *,
    head: str,
    steps: int | None = None,
) -> Meta:
    """The rule over named objectives, one of which learns the task through `head`, in so many steps."""
    meta, seed = settings.pretrain.meta, derive(settings.pretrain_seed, "meta")
    folds = pretrain_folds(task, settings, steps)

    def answered(split: str, size: int) -> TaskObjective:
        texts = PackedTexts(packed / ("task" if split == "train" else split))
        if not len(texts):
            raise InputError(f"there are no {split} texts to learn weights from", key="pretrain.meta.split")
        stream = TextStream(f"meta {split}", texts, network, batch_size=BatchSize.parse(str(size)), seed=0)
        return task_objective(task, end_task, stream, head=head, split=split)

    source = TextHeldOut(
        answered("train", meta.fit_batch),
        answered("dev" if folds is None else "train", meta.gradient_batch),
        head_task_of(task),
        folds=folds,
        settings=meta,
        seed=seed,
    )
    gradient = HeldOutGradient(network, source, settings=meta, context=context, seed=seed)
    names = [end_task, *(name for name in objectives if name != end_task)]
    start = [settings.used_objectives[name].weight for name in names]
    return Meta(names, gradient, settings=meta, device=context.device, start=start)


HEAD_TASKS: dict[str, Callable[[int], HeadTask]] = {
    "classes": Classes,
    "tags": Classes,
    "label_sets": LabelSets,
    "numbers": lambda _: Scores(),
}
"""What a head learns, by the form of a task's answers."""


def head_task_of(task: Task) -> HeadTask:
    """What a separate head for the task says of each text or token."""
    return HEAD_TASKS[task.task_type.form](len(task.labels))
