"""What one run came to, as its file holds it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from endtask.errors import InputError
from endtask.few_examples.draws import Numbers
from endtask.few_examples.plan import Key
from endtask.few_examples.units import Units
from endtask.io.atomic import write_text
from endtask.task.targets import Answers, as_lists, from_lists

_PLACES = 6


@dataclass(frozen=True)
class Result:
    """The epoch that was best on held-out rows, its perplexity there, and the answers to the scored rows.

    `surprise` is the cross-entropy of each scored row, summed over what is asked of it, and `asked` how much that is.
    """

    key: Key
    epoch: int
    held_out_perplexity: float
    answers: list[Any]
    surprise: list[float]
    asked: list[int]

    @property
    def perplexity(self) -> float:
        """exp of the mean cross-entropy over all that is asked."""
        return float(np.exp(sum(self.surprise) / max(1, sum(self.asked))))

    def as_array(self, units: Units) -> Answers:
        """The answers as `Units.truth` has them, as wide as the table of all rows."""
        if not units.per_token:
            return from_lists(self.answers, units.type)
        table = np.full((len(self.answers), units.truth.shape[1]), -1, dtype=np.int64)
        for place, row in enumerate(self.answers):
            table[place, : len(row)] = row
        return table


def make_result(
    key: Key, epoch: int, held_out: float, units: Units, test: Numbers, probabilities: np.ndarray[Any, Any]
) -> Result:
    """The result of a run whose best weights gave these probabilities for the units of the scored rows."""
    sums, asked = units.surprise(test, probabilities)
    answers = as_lists(units.answers(test, probabilities), units.type)
    return Result(key, epoch, held_out, answers, [round(float(each), _PLACES) for each in sums], asked.tolist())


def write_result(result: Result, folder: Path) -> None:
    """Keep a result, so that a killed command need not train it again."""
    tree = {**vars(result), "key": asdict(result.key)}  # `asdict` would copy every answer
    write_text(folder / result.key.file_name, json.dumps(tree))


def read_result(folder: Path, key: Key) -> Result | None:
    """The result of a run, if it is there."""
    path = folder / key.file_name
    if not path.exists():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        result = Result(**{**tree, "key": Key(**tree["key"])})
        if result.key != key or not len(result.answers) == len(result.surprise) == len(result.asked):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InputError(
            "not the result of a run", path=path, hint="delete the file; the run is then made anew"
        ) from None
    return result
