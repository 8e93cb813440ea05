"""What all runs of an arm share: which rows each of them learns from, chooses by and is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from endtask.config import BatchSize, PhaseSettings
from endtask.few_examples.draws import Draw, Numbers, held_out_of
from endtask.few_examples.plan import Key, Plan
from endtask.few_examples.units import Units
from endtask.seeds import derive
from endtask.tokenization.sampling import BatchPlan


@dataclass(frozen=True)
class Bench:
    """What all runs of an arm share: the plan, numbers of labels, draws, and what rows ask."""

    plan: Plan
    labels: tuple[int, ...]
    draws: Sequence[Draw]
    units: Units

    def learned(self, key: Key) -> Numbers:
        """The rows that a run learns from."""
        return self.draws[key.draw].learned(key.labels)

    def held_out(self, key: Key) -> Numbers:
        """The rows that choose its epoch."""
        return held_out_of(self.draws[key.draw], key.labels, self.plan)

    def test(self, key: Key) -> Numbers:
        """The rows that it is scored on."""
        return self.draws[key.draw].test

    def batches(self, key: Key) -> BatchPlan:
        """Which of the learned rows make up each batch."""
        return batches_of(self.plan, key)

    def all_rows(self) -> Numbers:
        """All rows that some run reads."""
        keys = [Key(labels, draw, 0, 0.0) for labels in self.labels for draw in range(len(self.draws))]
        parts = [part for key in keys for part in (self.learned(key), self.held_out(key), self.test(key))]
        return np.unique(np.concatenate(parts))


def batches_of(plan: Plan, key: Key, task: str = "few-examples") -> BatchPlan:
    """Batches of as many rows as a run has labels, in an order of each task's own."""
    seed = derive(plan.seed, "few-examples", "batches", key.seed, key.draw)
    return BatchPlan(np.ones(key.labels, dtype=np.int64), BatchSize(plan.batch_size, "texts"), seed, task)


def phase_settings() -> PhaseSettings:
    """How everything here learns: AdamW at a constant rate, for the best epoch is chosen and none need be the last."""
    return PhaseSettings(lr_scheduler_type="constant", warmup_fraction=0.0)
