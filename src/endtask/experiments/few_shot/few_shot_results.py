"""The result of a few-shot trial and its file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from endtask.errors import InputError
from endtask.experiments.few_shot.few_shot_spec import FewShotTrial
from endtask.experiments.few_shot.label_draws import Indices
from endtask.experiments.few_shot.prediction_units import PredictionUnits
from endtask.io.atomic import write_text
from endtask.task.targets import Answers, as_lists, from_lists

_DECIMALS = 6


@dataclass(frozen=True)
class FewShotResult:
    """The epoch that was best on held-out rows, its perplexity there, and the predictions of the scored rows.

    `losses` has the cross-entropy of each scored row, summed over its units, and `counts` their number.
    """

    trial: FewShotTrial
    epoch: int
    held_out_perplexity: float
    predictions: list[Any]
    losses: list[float]
    counts: list[int]

    @property
    def perplexity(self) -> float:
        """exp of the mean cross-entropy over all units."""
        return float(np.exp(sum(self.losses) / max(1, sum(self.counts))))

    def as_array(self, units: PredictionUnits) -> Answers:
        """Return the predictions in the form of `PredictionUnits.truth`, as wide as the table of all rows."""
        if not units.per_token:
            return from_lists(self.predictions, units.type)
        table = np.full((len(self.predictions), units.truth.shape[1]), -1, dtype=np.int64)
        for index, row in enumerate(self.predictions):
            table[index, : len(row)] = row
        return table


def make_result(
    trial: FewShotTrial,
    epoch: int,
    held_out: float,
    units: PredictionUnits,
    test: Indices,
    probabilities: np.ndarray[Any, Any],
) -> FewShotResult:
    """Return the result of a trial whose best weights gave these probabilities for the units of the scored rows."""
    sums, counts = units.losses(test, probabilities)
    predictions = as_lists(units.predictions(test, probabilities), units.type)
    losses = [round(float(each), _DECIMALS) for each in sums]
    return FewShotResult(trial, epoch, held_out, predictions, losses, counts.tolist())


def write_result(result: FewShotResult, folder: Path) -> None:
    """Store a result, so that a killed experiment does not repeat the trial."""
    tree = {**vars(result), "trial": asdict(result.trial)}  # `asdict` would copy every prediction
    write_text(folder / result.trial.file_name, json.dumps(tree))


def read_result(folder: Path, trial: FewShotTrial) -> FewShotResult | None:
    """Return the result of a trial; None if it is not there."""
    path = folder / trial.file_name
    if not path.exists():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        result = FewShotResult(**{**tree, "trial": FewShotTrial(**tree["trial"])})
        if result.trial != trial or not len(result.predictions) == len(result.losses) == len(result.counts):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        hint = "delete the file to run the trial again"
        raise InputError("not the result of a few-shot trial", path=path, hint=hint) from None
    return result
