"""Held-out batches of a task's texts, for the gradient that learned weights follow."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config.meta import MetaSettings
from endtask.encoders.batch import TextBatch
from endtask.encoders.network import Network
from endtask.objectives.task_base import TaskObjective
from endtask.seeds import generator
from endtask.weighting.meta.folds import Folds
from endtask.weighting.meta.head import Classes, HeadTask


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
        settings: MetaSettings,
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
    places = np.arange(len(stream.texts)) if allowed is None else np.flatnonzero(allowed[stream.texts.examples])
    positions = stream.fitting(random.choice(places, min(size, len(places)), replace=False))
    return source.answered(stream.lay_out(positions), positions)
