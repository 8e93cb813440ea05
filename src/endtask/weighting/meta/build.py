"""Builds the rule of learned weights: which task data is held out, and through which head the gradient is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endtask.config import BatchSize
from endtask.errors import InputError
from endtask.objectives.context import pretrain_head
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.weighting.base import WeightingContext
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes, HeadTask, LabelSets, Scores
from endtask.weighting.meta.part import SPLIT_KEY
from endtask.weighting.meta.rule import Meta
from endtask.weighting.meta.texts import TextHeldOut

if TYPE_CHECKING:
    from endtask.weighting.meta.part import MetaWeighting


def meta_rule(run: WeightingContext, weighting: MetaWeighting, steps: int | None) -> Meta:
    """Return the rule over the objectives of a phase; the first that sees the labels is the end task's."""
    config, settings = weighting.config, run.settings
    used, seed = settings.used_objectives, derive(settings.pretrain_seed, "meta")
    end_task = next(name for name in run.objectives if used[name].sees_labels)
    folds = weighting.folds(run.task, settings.pretrain_seed, steps)

    def labelled(split: str, size: int) -> TaskObjective:
        texts = PackedTexts(run.packed / ("task" if split == "train" else split))
        if not len(texts):
            raise InputError(f"there are no {split} texts to learn weights from", key=SPLIT_KEY)
        stream = TextStream(f"meta {split}", texts, run.network, batch_size=BatchSize.parse(str(size)), seed=0)
        return task_objective(run.task, end_task, stream, head=pretrain_head(settings), split=split)

    source = TextHeldOut(
        labelled("train", config.fit_batch),
        labelled("dev" if folds is None else "train", config.gradient_batch),
        head_task_of(run.task),
        folds=folds,
        settings=config,
        seed=seed,
    )
    gradient = HeldOutGradient(run.network, source, settings=config, context=run.context, seed=seed)
    names = [end_task, *(name for name in run.objectives if name != end_task)]
    start = [used[name].weight for name in names]
    return Meta(names, gradient, settings=config, device=run.context.device, start=start)


def head_task_of(task: Task) -> HeadTask:
    """Return what a separate head for the task predicts for each text or token."""
    if task.kind == "score":
        return Scores()
    return LabelSets(len(task.labels)) if task.kind == "labels" else Classes(len(task.labels))
