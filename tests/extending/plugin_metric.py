"""A user's metric in one file: errors with different costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from endtask.config.section import PartConfig
from endtask.evaluation.metrics import Metric, metrics


@metrics.register("cheapness")
class Cheapness(Metric):
    """1 less the mean cost of a row; missing the first class costs `missed`, any other error costs 1."""

    forms = ("classes",)

    class Config(PartConfig):
        """Options beside `evaluate.metric: cheapness`."""

        missed: float = Field(1.0, ge=0, description="what it costs to miss the first class")

    def compute(self, truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> float:
        costs = np.where(truth == 0, self.options.missed, 1.0)  # type: ignore[attr-defined]
        return float(1.0 - (costs * (truth != predicted)).mean())
