"""What all runs of an arm share: which rows each of them learns from, chooses by and is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from endtask.few_examples.draws import Draw, Numbers
from endtask.few_examples.plan import Key, Plan
from endtask.few_examples.units import Units
from endtask.seeds import derive
from endtask.settings import BatchSize, PhaseSettings
from endtask.text.sampling import BatchPlan


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
        rows = 0 if self.plan.held_out == "dev" else self.plan.held_out_rows(key.labels)
        return self.draws[key.draw].held_out(key.labels, rows)

    def test(self, key: Key) -> Numbers:
        """The rows that it is scored on."""
        return self.draws[key.draw].test

    def batches(self, key: Key) -> BatchPlan:
        """Which of the learned rows make up each batch."""
        seed = derive(self.plan.seed, "few-examples", "batches", key.seed, key.draw)
        sizes = np.ones(key.labels, dtype=np.int64)
        return BatchPlan(sizes, BatchSize(self.plan.batch_size, "texts"), seed, "few-examples")

    def all_rows(self) -> Numbers:
        """All rows that some run reads."""
        keys = [Key(labels, draw, 0, 0.0) for labels in self.labels for draw in range(len(self.draws))]
        parts = [part for key in keys for part in (self.learned(key), self.held_out(key), self.test(key))]
        return np.unique(np.concatenate(parts))


def phase_settings() -> PhaseSettings:
    """How everything here learns: AdamW at a constant rate, for the best epoch is chosen and none need be the last."""
    return PhaseSettings(lr_scheduler_type="constant", warmup_fraction=0.0)
