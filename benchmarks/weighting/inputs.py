"""Made-up texts: for what a step costs, only their number and length count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.clock import StepClock
from benchmarks.training.prepare import write_rows
from benchmarks.weighting.cases import CLASSES, LENGTH, Case
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts

SEED = 0
TEXTS = 4096
SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
MASKED_SHARE = 0.15
LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class Bench:
    """Where there is room to work, and how many steps are taken."""

    scratch: Path
    warmup: int
    steps: int

    def clock(self, case: Case) -> StepClock:
        """A clock for as many steps as the case is trained."""
        import torch

        return StepClock(torch.device(case.device), self.warmup, self.steps)

    def texts(self, name: str, vocabulary: int) -> PackedTexts:
        """Rows of random tokens, each between [CLS] and [SEP]."""
        folder = self.scratch / f"{name}-{vocabulary}"
        if (folder / "shape.json").exists():
            return PackedTexts(folder)
        rows = generator(SEED, "weighting benchmark", name).integers(len(SPECIAL), vocabulary, (TEXTS, LENGTH))
        rows[:, 0], rows[:, -1] = SPECIAL["cls"], SPECIAL["sep"]
        return write_rows(rows, folder)


def labels() -> NDArray[np.int64]:
    """A class for every text."""
    return generator(SEED, "weighting benchmark", "labels").integers(0, CLASSES, TEXTS)
