"""Scores of texts under the weights of the moment: what a step on each would do for the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.errors import TrainingError
from endtask.gradients.engine import GradientEngine, Readings
from endtask.gradients.losses import TextLosses, masked_lm_losses, task_losses
from endtask.gradients.plan import Work, make_plan
from endtask.gradients.rows import Gradients, Units
from endtask.gradients.scoring import Calibration, like_lengths, score_batches
from endtask.gradients.targets import Targets
from endtask.models.batch import Layout, TextBatch, lay_out
from endtask.models.network import TASK, Network
from endtask.models.place import Place
from endtask.objectives.masking import Masking
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.text_masks import mask_texts
from endtask.settings.reselect import ReselectSettings
from endtask.text.packed import PackedTexts
from endtask.train.reselect_cost import reading_share

LAYERS = ("last",)
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Judging:
    """Texts of the task whose loss is to fall, what they are asked, and which of them anybody could answer."""

    asked: TaskObjective
    judges: NDArray[np.bool_]

    @property
    def texts(self) -> PackedTexts:
        """The texts themselves."""
        return self.asked.stream.texts


@dataclass
class Scored:
    """A number for each candidate, and what finding them out took."""

    values: NDArray[np.float64]
    tokens: int = 0
    matmul_flops: float = 0.0

    def count(self, network: Network, batch: TextBatch) -> None:
        """Add the reading of a batch."""
        self.tokens += batch.real_tokens
        texts = 0 if batch.labels is None else batch.texts
        self.matmul_flops += reading_share(network) * network.training_flops(batch, masked=batch.masked, texts=texts)


@dataclass(frozen=True)
class HelpScores:
    """Scores candidates by the products of their masked-LM gradients with the task gradients of some rows.

    Dropout is off, and the network is left as it was.
    """

    network: Network
    place: Place
    candidates: PackedTexts
    judging: Judging
    masking: Masking
    settings: ReselectSettings
    most_tokens: int
    head: str = TASK

    def scores(self, which: Places, rows: Places, seed: int) -> Scored:
        """The mean of each candidate's best scores, every row's scores being in deviations from their mean."""
        scored = Scored(np.empty(len(which)))
        targets = self._targets(which, rows, seed, scored)
        order = list(like_lengths(self.candidates.lengths[which], self.most_tokens))
        batches = (self._masked(which[places], seed) for places in order)

        def score(readings: Readings) -> torch.Tensor:
            return targets.scores(self._gradients(readings, masked_lm_losses, scored), self.settings.measure)

        found = torch.cat(list(score_batches(batches, score, self.place)))
        if not bool(torch.isfinite(found).all()):
            raise TrainingError("re-selection: scores are not finite", hint="lower train.learning_rate")
        usual = Calibration.of(found).apply(found)
        best = usual.topk(min(self.settings.top_targets, len(rows)), dim=1).values.mean(1)
        scored.values[np.concatenate(order)] = best.double().numpy()
        return scored

    @cached_property
    def _engine(self) -> GradientEngine:
        return GradientEngine(self.network, LAYERS, self.place)

    def _gradients(self, readings: Readings, losses: TextLosses, scored: Scored) -> Gradients:
        for batch in readings.batches:
            scored.count(self.network, batch)
        return readings.gradients(self._engine, losses)

    def _targets(self, which: Places, rows: Places, seed: int, scored: Scored) -> Targets:
        found = self._target_gradients(rows, scored)
        first = next(found)
        few = which[next(like_lengths(self.candidates.lengths[which], self.most_tokens))]
        sample = self._gradients(self._masked(few, seed), masked_lm_losses, scored)
        work = Work(len(which), len(rows), len(rows))
        targets = Targets(make_plan(sample, first[1], work), Units.single(len(rows)))
        for places, gradients in chain((first,), found):
            targets.add(gradients, places)
        return targets

    def _target_gradients(self, rows: Places, scored: Scored) -> Iterator[tuple[Places, Gradients]]:
        texts = self.judging.texts
        # Asked for by name, the losses are known to read less than all tokens.
        losses: TextLosses = task_losses if self.head == TASK else partial(task_losses, head=self.head)
        for places in like_lengths(texts.lengths[rows], self.most_tokens):
            batch = self.judging.asked.answered(lay_out(texts, rows[places], self._layout(texts)), rows[places])
            yield places, self._gradients(Readings((batch,)), losses, scored)

    def _masked(self, which: Places, seed: int) -> Readings:
        batch, turns = lay_out(self.candidates, which, self._layout(self.candidates)), range(self.settings.masks)
        return Readings(tuple(mask_texts(batch, which, self.masking, seed, turn) for turn in turns))

    def _layout(self, texts: PackedTexts) -> Layout:
        with self.network.uncompiled():  # as the engine reads
            return self.network.layout(int(texts.lengths.max()))
