"""Re-selection: every so many steps, stage 1 goes on with the external texts that now help the task most."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.objectives.stream import TextStream
from endtask.seeds import derive, generator
from endtask.train.meta_folds import Folds
from endtask.train.reselect_cost import count_round
from endtask.train.reselect_scores import HelpScores, Places

_STEP, _CHOSEN = "step", "chosen"


@dataclass(frozen=True)
class HeldOutRows:
    """Which rows judge: all, or the part of train that the folds hold out.

    `streams` are the batches that leave that part out; none where somebody else sees to it.
    """

    folds: Folds | None = None
    streams: Sequence[TextStream] = ()

    def judging(self, step: int, last: int, rows: int) -> Places:
        """The rows that judge after so many steps, the last re-selection being after `last`."""
        if self.folds is None:
            return np.arange(rows)
        return np.flatnonzero(self.folds.held_out(last if self.streams else step - 1))

    def leave_out(self, step: int | None) -> None:
        """Leave out the part that is to judge next, or nothing."""
        for stream in self.streams:
            assert self.folds is not None
            stream.narrow(None if step is None else np.flatnonzero(~self.folds.held_out(step)))


class Reselection:
    """A `Renewal`: scores a reservoir by the weights of the moment, and narrows the external batches to its best.

    Which texts are drawn, masked and judge is a pure function of seed and step. The choice is the state: with it a
    resumed run reads the same batches.
    """

    def __init__(
        self,
        scores: HelpScores,
        external: Sequence[TextStream],
        held_out: HeldOutRows,
        *,
        last_step: int,
        seed: int,
    ) -> None:
        assert scores.settings.every is not None
        self.steps: int = scores.settings.every
        self._scores, self._external, self._held_out = scores, external, held_out
        self._last_step, self._seed = last_step, seed
        self._step, self._chosen = 0, np.ones(len(scores.candidates), dtype=bool)
        self._put()

    def renew(self, step: int, memory: dict[str, Any]) -> dict[str, float]:
        """Choose anew after so many steps; returns the mean score of what is kept, and of the whole reservoir."""
        self._scores.place.synchronize()
        started = time.perf_counter()
        reservoir, rows = self.reservoir(step), self._rows(step)
        scored = self._scores.scores(reservoir, rows, derive(self._seed, "mask", step))
        scores = scored.values
        best = best_of(scores, self._scores.settings.keep)
        self._step, self._chosen = step, np.zeros(len(self._chosen), dtype=bool)
        self._chosen[reservoir[best]] = True
        self._put()
        count_round(memory, scored.tokens, scored.matmul_flops, time.perf_counter() - started)
        return {"reselect/kept": float(scores[best].mean()), "reselect/reservoir": float(scores.mean())}

    def reservoir(self, step: int) -> Places:
        """The texts that are scored after so many steps."""
        return _some(np.arange(len(self._chosen)), self._scores.settings.reservoir, self._seed, "reservoir", step)

    def state(self) -> dict[str, Tensor]:
        """The texts that are read, and since which step."""
        return {_STEP: torch.tensor(self._step), _CHOSEN: torch.from_numpy(self._chosen.copy())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; the texts must be as many as they were."""
        if state.keys() != {_STEP, _CHOSEN} or len(state[_CHOSEN]) != len(self._chosen):
            raise ValueError(f"a choice among {len(self._chosen)} texts is not in a state of {sorted(state)}")
        self._step, self._chosen = int(state[_STEP]), state[_CHOSEN].bool().cpu().numpy().copy()
        self._put()

    def _put(self) -> None:
        """Let the batches be those of the present choice."""
        only = None if self._chosen.all() else np.flatnonzero(self._chosen)
        for stream in self._external:
            stream.narrow(only)
        is_last = self._step + self.steps >= self._last_step
        self._held_out.leave_out(None if is_last else self._step)

    def _rows(self, step: int) -> Places:
        judging, settings = self._scores.judging, self._scores.settings
        found = self._held_out.judging(step, self._step, int(judging.texts.examples[-1]) + 1)
        texts = np.flatnonzero(np.isin(judging.texts.examples, found) & judging.judges)
        return _some(texts, settings.most_targets, self._seed, "targets", step)


def best_of(scores: NDArray[np.float64], keep: float) -> Places:
    """The places of the highest scores, rising; of equal ones the first.

    >>> best_of(np.array([0.5, 2.0, 0.5, 1.0]), 0.6).tolist()
    [0, 1, 3]
    """
    count = max(1, math.ceil(keep * len(scores) - 1e-9))
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _some(places: Places, most: int | None, seed: int, purpose: str, step: int) -> Places:
    """All places, or a draw of so many, rising."""
    if most is None or len(places) <= most:
        return places
    return np.sort(generator(seed, purpose, step).choice(places, most, replace=False))
