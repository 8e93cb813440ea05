"""Builds the rule of learned weights: which task data is held out, and through which head the gradient is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config import BatchSize
from endtask.encoders.batch import TextBatch
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.context import pretrain_head
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.seeds import derive, generator
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.weighting.base import ExtraCost, WeightingContext
from endtask.weighting.meta.folds import Folds, groups_in
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes, HeadTask, LabelSets, Scores
from endtask.weighting.meta.part import LEARNED_WEIGHTS, SPLIT_KEY, MetaConfig
from endtask.weighting.meta.rule import Meta

if TYPE_CHECKING:
    from endtask.weighting.meta.part import MetaWeighting


class TextHeldOut:
    """A `HeldOut` of texts: the head is fitted to some of the first objective's, held out are some of the other's.

    With folds both read the same texts, and at each step only one of them reads those of the part held out. The
    objectives say which texts there are, how they are laid out and what the right answers are; their own batches are
    not read.
    """

    def __init__(
        self,
        fit: TaskObjective,
        held_out: TaskObjective,
        head_task: HeadTask,
        *,
        folds: Folds | None,
        settings: MetaConfig,
        seed: int,
    ) -> None:
        self.head_task, self._head, self._seed = head_task, fit.head, seed
        self._fit, self._held_out, self._folds, self._settings = fit, held_out, folds, settings

    def fit_batch(self, step: int) -> TextBatch:
        """Texts to fit a head to, none of them held out."""
        allowed = None if self._folds is None else ~self._folds.held_out(step)
        return _drawn(self._fit, self._settings.fit_batch, allowed, generator(self._seed, "meta fit", step))

    def gradient_batch(self, step: int) -> TextBatch:
        """Texts that are held out."""
        allowed = None if self._folds is None else self._folds.held_out(step)
        random = generator(self._seed, "meta gradient", step)
        return _drawn(self._held_out, self._settings.gradient_batch, allowed, random)

    def features(self, network: Network, batch: TextBatch) -> Tensor:
        """The vectors that the task's head reads: of each text, of tags of each token."""
        hidden: Tensor = network(batch)
        if network.task_type.per_token:
            return hidden
        return network.pooled(hidden, batch, self._head)

    def own_outputs(self, network: Network, batch: TextBatch) -> Tensor:
        """What the task's head says of each text or token."""
        return network.task_logits(network(batch), batch, self._head)

    def targets(self, batch: TextBatch) -> Tensor:
        """The right answers; those of padding, and classes that train does not have, do not count."""
        assert batch.labels is not None
        assert batch.weights is not None
        counts = batch.weights > 0
        if isinstance(self.head_task, Classes):
            counts = counts & (batch.labels < self.head_task.outputs)
        shape = counts.view(-1, *[1] * (batch.labels.ndim - 1))
        return torch.where(shape, batch.labels, torch.full_like(batch.labels, self.head_task.nothing))


def _drawn(
    source: TaskObjective, size: int, allowed: NDArray[np.bool_] | None, random: np.random.Generator
) -> TextBatch:
    """A batch of texts of the examples allowed; all of them where they are fewer."""
    stream = source.stream
    allowed_texts = np.arange(len(stream.texts)) if allowed is None else np.flatnonzero(allowed[stream.texts.examples])
    positions = stream.fitting(random.choice(allowed_texts, min(size, len(allowed_texts)), replace=False))
    return source.answered(stream.lay_out(positions), positions)


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


HEAD_TASKS: dict[str, Callable[[int], HeadTask]] = {
    "classes": Classes,
    "tags": Classes,
    "label_sets": LabelSets,
    "numbers": lambda _: Scores(),
}
"""What a head learns, by the form of a task's answers."""


def head_task_of(task: Task) -> HeadTask:
    """Return what a separate head for the task predicts for each text or token."""
    return HEAD_TASKS[task.task_type.form](len(task.labels))
