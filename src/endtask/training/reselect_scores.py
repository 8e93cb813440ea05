"""Scores of texts under the weights of the moment: what a step on each would do for the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import Layout, TextBatch, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.errors import TrainingError
from endtask.gradients.engine import GradientEngine, Readings
from endtask.gradients.losses import TextLosses, masked_lm_losses, task_losses
from endtask.gradients.plan import Workload, make_plan
from endtask.gradients.rows import Gradients, Units
from endtask.gradients.scoring import Calibration, like_lengths, score_batches
from endtask.gradients.targets import Targets
from endtask.objectives.masking import Masking
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.text_masks import mask_texts
from endtask.tokenization.packed_texts import PackedTexts

LAYERS = ("last",)
MASKS = 2
"""Masks of a text over which its gradient is averaged."""
TOP_TARGETS = 10
"""How many of a text's best scores are averaged."""
Places = NDArray[np.int64]


def reading_share(network: Network) -> float:
    """What scoring costs of training on as much: a pass forward, and one backward through the last layer."""
    return (1 + 2 / int(network.config.num_hidden_layers)) / 3


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
    """Scores candidates by the cosines of their masked-LM gradients and the task gradients of some rows of `validation`.

    Dropout is off, and the network is left as it was.
    """

    network: Network
    context: DeviceContext
    candidates: PackedTexts
    validation: TaskObjective
    masking: Masking
    most_tokens: int
    head: str = TASK

    def scores(self, which: Places, rows: Places, seed: int) -> Scored:
        """The mean of each candidate's best scores, every row's scores being in deviations from their mean."""
        scored = Scored(np.empty(len(which)))
        targets = self._targets(which, rows, seed, scored)
        order = list(like_lengths(self.candidates.lengths[which], self.most_tokens))
        batches = (self._masked(which[places], seed) for places in order)

        def score(readings: Readings) -> torch.Tensor:
            return targets.scores(self._gradients(readings, masked_lm_losses, scored), "cosine")

        found = torch.cat(list(score_batches(batches, score, self.context)))
        if not bool(torch.isfinite(found).all()):
            raise TrainingError("re-selection: scores are not finite", hint="lower pretrain.learning_rate")
        usual = Calibration.of(found).apply(found)
        best = usual.topk(min(TOP_TARGETS, len(rows)), dim=1).values.mean(1)
        scored.values[np.concatenate(order)] = best.double().numpy()
        return scored

    @cached_property
    def _engine(self) -> GradientEngine:
        return GradientEngine(self.network, LAYERS, self.context)

    def _gradients(self, readings: Readings, losses: TextLosses, scored: Scored) -> Gradients:
        for batch in readings.batches:
            scored.count(self.network, batch)
        return readings.gradients(self._engine, losses)

    def _targets(self, which: Places, rows: Places, seed: int, scored: Scored) -> Targets:
        found = self._target_gradients(rows, scored)
        first = next(found)
        few = which[next(like_lengths(self.candidates.lengths[which], self.most_tokens))]
        sample = self._gradients(self._masked(few, seed), masked_lm_losses, scored)
        work = Workload(len(which), len(rows), len(rows))
        targets = Targets(make_plan(sample, first[1], work), Units.single(len(rows)))
        for places, gradients in chain((first,), found):
            targets.add(gradients, places)
        return targets

    def _target_gradients(self, rows: Places, scored: Scored) -> Iterator[tuple[Places, Gradients]]:
        texts = self.validation.stream.texts
        # Asked for by name, the losses are known to read less than all tokens.
        losses: TextLosses = task_losses if self.head == TASK else partial(task_losses, head=self.head)
        for places in like_lengths(texts.lengths[rows], self.most_tokens):
            batch = self.validation.answered(lay_out(texts, rows[places], self._layout(texts)), rows[places])
            yield places, self._gradients(Readings((batch,)), losses, scored)

    def _masked(self, which: Places, seed: int) -> Readings:
        batch, schedule = lay_out(self.candidates, which, self._layout(self.candidates)), range(MASKS)
        return Readings(tuple(mask_texts(batch, which, self.masking, seed, turn) for turn in schedule))

    def _layout(self, texts: PackedTexts) -> Layout:
        with self.network.uncompiled():  # as the engine reads
            return self.network.layout(int(texts.lengths.max()))
