"""The rows and batches of each trial: what it trains on, what chooses its epoch and what it is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from endtask.config import BatchSize, PhaseSettings
from endtask.encoders.batch import batch_shape_for
from endtask.encoders.network import Network
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, Draw, Indices, held_out_of
from endtask.experiments.few_shot.prediction_units import PredictionUnits
from endtask.objectives.stream import TextStream
from endtask.seeds import derive
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.sampling import BatchPlan


@dataclass(frozen=True)
class TrialRows:
    """The rows of all trials of a variant: the spec, numbers of labels, draws, and what is predicted."""

    spec: FewShotSpec
    labels: tuple[int, ...]
    draws: Sequence[Draw]
    units: PredictionUnits

    def train(self, trial: FewShotTrial) -> Indices:
        """Return the rows that a trial trains on."""
        return self.draws[trial.draw].train(trial.labels)

    def held_out(self, trial: FewShotTrial) -> Indices:
        """Return the rows that choose its epoch."""
        return held_out_of(self.draws[trial.draw], trial.labels, self.spec)

    def test(self, trial: FewShotTrial) -> Indices:
        """Return the rows that it is scored on."""
        return self.draws[trial.draw].test

    def batches(self, trial: FewShotTrial) -> BatchPlan:
        """Return which of the training rows make up each batch."""
        return batches_of(self.spec, trial)

    def all_rows(self) -> Indices:
        """Return all rows that some trial reads."""
        trials = [FewShotTrial(labels, draw, 0, 0.0) for labels in self.labels for draw in range(len(self.draws))]
        parts = [part for each in trials for part in (self.train(each), self.held_out(each), self.test(each))]
        return np.unique(np.concatenate(parts))


def batches_of(spec: FewShotSpec, trial: FewShotTrial, task: str = RANDOM_STREAM) -> BatchPlan:
    """Return batches of as many rows as a trial has labels; each task has its own order."""
    seed = derive(spec.seed, RANDOM_STREAM, "batches", trial.seed, trial.draw)
    return BatchPlan(np.ones(trial.labels, dtype=np.int64), BatchSize(spec.batch_size, "texts"), seed, task)


def phase_settings() -> PhaseSettings:
    """Return AdamW with a constant learning rate: the best epoch is chosen, so none needs to be the last."""
    return PhaseSettings(lr_scheduler_type="constant", warmup_fraction=0.0)


class SelectedTexts(TextStream):
    """Batches of some of the texts, by a plan over these alone."""

    def __init__(
        self, name: str, texts: PackedTexts, network: Network, rows: Indices, plan: BatchPlan, size: int
    ) -> None:
        super().__init__(name, texts, network, batch_size=BatchSize(size, "texts"), seed=0)
        self._rows, self.plan = rows, plan
        if network.fixed_shapes:  # the shape for batches of all texts may be too small for these
            longest = np.sort(texts.lengths[rows])[-size:]
            self._fixed_shape = batch_shape_for(int(longest.sum()), len(longest), 0.0, self._layout)
            self._layout = replace(self._layout, fixed_shape=self._fixed_shape)

    def positions(self, step: int) -> Indices:
        """Return the texts of a step's batch."""
        return self._rows[self.plan.positions(step)]
