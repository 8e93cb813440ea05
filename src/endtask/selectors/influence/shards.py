"""Candidates scored shard by shard: each shard's figures are a whole file, so that a killed run loses at most one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.errors import TrainingError
from endtask.gradients.scoring import Calibration, made_ahead
from endtask.io.atomic import atomic_file
from endtask.progress import bar
from endtask.selectors.influence.candidates import CandidateUnits
from endtask.selectors.influence.config import InfluenceConfig
from endtask.selectors.influence.score_targets import LISTED
from endtask.selectors.influence.scorer import Scorer

_FEWEST_UNITS, _MOST_SHARDS = 1024, 128
_TOP_TARGETS = 10
"""How many of a candidate's best scores are averaged: a text need not help every target."""

Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class ShardWork:
    """What is done with the scores of a shard."""

    settings: InfluenceConfig
    calibration: Calibration
    shares: NDArray[np.float32]  # of each column in the mean of each class: (columns, classes)

    def statistics(self, scores: Tensor, first: int) -> Arrays:
        """The figures of a shard's units, the first of which has the number `first`: (units, columns) -> arrays."""
        scores = self.calibration.apply(scores)
        best = scores.topk(min(_TOP_TARGETS, scores.shape[1]), dim=1)
        listed = min(LISTED, len(scores))
        most, least = scores.topk(listed, dim=0), (-scores).topk(listed, dim=0)
        shares = torch.from_numpy(self.shares).to(scores.device)
        found = {
            "score": best.values.mean(1),
            "column": best.indices[:, 0],
            "by_class": scores @ shares,
            "most_units": most.indices + first,
            "most_scores": most.values,
            "least_units": least.indices + first,
            "least_scores": -least.values,
        }
        if self.settings.choice == "top_k":
            found["scores"] = scores
        return {name: value.cpu().numpy() for name, value in found.items()}


class Shards:
    """The units cut into shards of equal size, and the files of those that are done."""

    def __init__(self, units: CandidateUnits, folder: Path) -> None:
        self.units, self._folder = units, folder
        self.size = max(_FEWEST_UNITS, -(-units.count // _MOST_SHARDS))
        self.count = -(-units.count // self.size)
        folder.mkdir(parents=True, exist_ok=True)

    def score(self, scorer: Scorer, work: ShardWork, on_shard: Callable[[], None] = lambda: None) -> None:
        """Score what no file holds yet."""
        left = [number for number in range(self.count) if not self._path(number).exists()]
        done = self.units.count - sum(len(self._units(number)) for number in left)
        with bar("influence", self.units.count, done=done) as advance:
            for number in left:
                scores = score_units(scorer, self.units, self._units(number), advance)
                if not bool(torch.isfinite(scores).all()):
                    raise TrainingError("influence: scores are not finite", hint="lower select.learning_rate")
                found = work.statistics(scores, number * self.size)
                with atomic_file(self._path(number)) as aside, open(aside, "wb") as file:
                    np.savez(file, **found)  # type: ignore[arg-type]
                on_shard()

    def read(self) -> Iterator[Arrays]:
        """The figures of all shards, in order."""
        for number in range(self.count):
            with np.load(self._path(number)) as file:
                yield dict(file)

    def gathered(self, name: str) -> NDArray[np.generic]:
        """One figure of all units."""
        parts = []
        for number in range(self.count):
            with np.load(self._path(number)) as file:
                parts.append(file[name])
        return np.concatenate(parts)

    def _units(self, number: int) -> NDArray[np.int64]:
        return np.arange(number * self.size, min((number + 1) * self.size, self.units.count))

    def _path(self, number: int) -> Path:
        return self._folder / f"shard-{number:04}.npz"


def score_units(
    scorer: Scorer, units: CandidateUnits, which: NDArray[np.int64], advance: Callable[..., None] = lambda amount: None
) -> Tensor:
    """The scores of some units, rising in number, read batch by batch: (units, columns)."""
    batches = list(units.batches(which, scorer.reader.most_tokens))
    scores = []
    for prepared in made_ahead((scorer.reader.candidates(units, batch) for batch in batches), scorer.context):
        scores.append(scorer.read(prepared))
        advance(len(scores[-1]))
    back = torch.from_numpy(np.argsort(np.concatenate(batches))).to(scorer.context.device)
    return torch.cat(scores)[back]
