"""Rankings of passages for each query, on disk in blocks of queries: memory never holds more than a few blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.io.atomic import atomic_file


@dataclass(frozen=True)
class Ranking:
    """A query's passages, best first; equal scores are in corpus order."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


@dataclass(frozen=True)
class RankedBlock:
    """The concatenated rankings of consecutive queries from index `first` on."""

    first: int
    sizes: NDArray[np.int64]
    positions: NDArray[np.int64]
    scores: NDArray[np.float64]

    def save(self, path: Path) -> None:
        """Write the block atomically."""
        with atomic_file(path) as aside, open(aside, "wb") as file:
            np.savez(file, first=self.first, sizes=self.sizes, positions=self.positions, scores=self.scores)

    @classmethod
    def load(cls, path: Path) -> RankedBlock:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(int(arrays["first"]), arrays["sizes"], arrays["positions"], arrays["scores"])


class Rankings:
    """The rankings of all queries, in order.

    `rankings[3]` is that of the fourth query; iterating loads one block at a time.
    """

    def __init__(self, paths: Sequence[Path], first_queries: Sequence[int], count: int) -> None:
        self._paths = tuple(paths)
        self._first_queries = np.asarray(first_queries, dtype=np.int64)
        self._count = count
        self._loaded: tuple[int, RankedBlock] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, query: int) -> Ranking:
        if not 0 <= query < self._count:
            raise IndexError(query)
        number = int(np.searchsorted(self._first_queries, query, side="right")) - 1
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = number, RankedBlock.load(self._paths[number])
        block = self._loaded[1]
        stop = int(block.sizes[: query - block.first + 1].sum())
        start = stop - int(block.sizes[query - block.first])
        return Ranking(block.positions[start:stop], block.scores[start:stop])

    def blocks(self) -> Iterator[RankedBlock]:
        """Yield all rankings, a block at a time."""
        return map(RankedBlock.load, self._paths)
