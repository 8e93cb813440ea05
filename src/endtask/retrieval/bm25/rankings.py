"""The best passages of each query: blocks of queries on disk, merged where machines ranked parts of the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.executors.base import Executor, Job, Report
from endtask.io.atomic import atomic_file
from endtask.io.digests import fingerprint

_MERGED_AT_ONCE = 4
"""Files that a job merges; each takes up to 64 MB of memory, and several times that while it is sorted."""


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
        """Read a block that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(int(arrays["first"]), arrays["sizes"], arrays["positions"], arrays["scores"])

    @classmethod
    def merged(cls, blocks: Sequence[RankedBlock], top_k: int) -> RankedBlock:
        """Return the best `top_k` of rankings of the same queries over different passages."""
        count = len(blocks[0].sizes)
        owners = np.concatenate([np.repeat(np.arange(count), block.sizes) for block in blocks])
        positions = np.concatenate([block.positions for block in blocks])
        scores = np.concatenate([block.scores for block in blocks])
        order = np.lexsort((positions, -scores, owners))
        totals = np.bincount(owners, minlength=count)
        ranks = np.arange(len(order)) - np.repeat(np.cumsum(totals) - totals, totals)
        best = order[ranks < top_k]
        return cls(blocks[0].first, np.minimum(totals, top_k), positions[best], scores[best])


class Rankings:
    """The rankings of all queries, in order: `rankings[3]` is that of the fourth query.

    A block of queries is loaded at a time.
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


def merge(parts: dict[Path, list[Path]], executor: Executor, top_k: int) -> None:
    """Merge the parts of each block of queries into its file, a few at a time as a tree; delete the parts."""
    finished = list(parts)
    while parts:
        jobs: list[Job] = []
        merged: dict[Path, list[Path]] = {}
        for path, files in parts.items():
            groups = [files[start : start + _MERGED_AT_ONCE] for start in range(0, len(files), _MERGED_AT_ONCE)]
            merged[path] = [path] if len(groups) == 1 else [_merged_path(path, group) for group in groups]
            jobs += [_job(group, into, top_k) for group, into in zip(groups, merged[path], strict=True)]
        executor.run(__name__, [job for job in jobs if not Path(job["into"]).exists()], lambda **_: None)
        parts = {path: files for path, files in merged.items() if files != [path]}
    for path in finished:
        for part in path.parent.glob(f"{path.stem}.*.npz"):
            part.unlink()


def _job(parts: Sequence[Path], into: Path, top_k: int) -> Job:
    return {"parts": [str(part) for part in parts], "into": str(into), "top_k": top_k}


def _merged_path(path: Path, group: Sequence[Path]) -> Path:
    return path.with_suffix(f".{fingerprint([file.name for file in group])}.npz")


def handle(job: Job, report: Report) -> None:
    """Merge some files of the same queries into one."""
    blocks = [RankedBlock.load(Path(path)) for path in job["parts"]]
    RankedBlock.merged(blocks, job["top_k"]).save(Path(job["into"]))
