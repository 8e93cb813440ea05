"""Measured retrievals: the seconds of each pass, and the rates per core that explain them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from endtask.executors.base import Executor, Job, Report

Pair = tuple[float, float]
PASSES = {
    "statistics_pass": "statistics",
    "ranking_pass": "ranking",
    "rankings": "merging",
    "matched_queries": "fetching",
}
"""The passes by the module whose jobs do them; all other time is the driver's."""


class TimedExecutor(Executor):
    """Adds up the seconds of each pass that another executor runs."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.workers, self.machines = executor.workers, executor.machines
        self.seconds: dict[str, float] = dict.fromkeys(PASSES.values(), 0.0)

    @property
    def cores_each(self) -> int:
        """The cores of the smallest machine."""
        return self._executor.cores_each

    def run(
        self,
        module: str,
        jobs: Sequence[Job],
        report: Report,
        *,
        cores: int = 1,
        small: bool = False,
        model: bool = False,
    ) -> None:
        """Run the jobs by the other executor."""
        started = time.perf_counter()
        try:
            self._executor.run(module, jobs, report, cores=cores, small=small, model=model)
        finally:
            self.seconds[PASSES[module.rpartition(".")[2]]] += time.perf_counter() - started

    def check_folder(self, folder: Path) -> None:
        """Raise `InputError` if a machine cannot read what this one writes to the folder."""
        self._executor.check_folder(folder)


@dataclass(frozen=True)
class Retrieval:
    """The size of a retrieval: text, passages, queries, passages per query, and the size of the files as stored."""

    text_bytes: float
    passages: float
    queries: float
    top_k: int
    stored_bytes: float

    @property
    def entries(self) -> float:
        """The entries of all rankings."""
        return self.queries * min(self.top_k, self.passages)

    def scaled(self, text_bytes: float, queries: float | None = None) -> Retrieval:
        """Return the retrieval of a corpus of another size, and of another number of queries.

        >>> Retrieval(1e9, 1e6, 1e3, 50, 4e8).scaled(2e9)
        Retrieval(text_bytes=2000000000.0, passages=2000000.0, queries=1000.0, top_k=50, stored_bytes=800000000.0)
        """
        factor = text_bytes / self.text_bytes
        queries = self.queries if queries is None else queries
        return Retrieval(text_bytes, self.passages * factor, queries, self.top_k, self.stored_bytes * factor)


@dataclass(frozen=True)
class MeasuredRetrieval:
    """A retrieval on some cores of one machine: seconds by pass and of the driver, passages found, bytes of scratch."""

    size: Retrieval
    cores: int
    seconds: dict[str, float]
    retrieved: float
    scratch_bytes: float

    @property
    def total(self) -> float:
        """The seconds from start to end."""
        return sum(self.seconds.values())

    @property
    def found_bytes(self) -> float:
        """The text of the passages found, as if they were of mean length."""
        return self.retrieved * self.size.text_bytes / self.size.passages


@dataclass(frozen=True)
class Rates:
    """Seconds of one core for each unit, and shares; pairs of values are (for each run or shard, for each unit)."""

    statistics: Pair
    """Fixed, and for each byte of text: read it, cut it into passages and count its words."""
    ranking: Pair
    """For each query and passage, and for each passage that enters the best K of a query."""
    fetching: Pair
    """For each byte of text, which is read again, and for each byte of a passage found."""
    driver: Pair
    """For each passage, which is numbered and compared with all others, and for each byte of a passage found."""
    scratch_share: float
    """Bytes of files between the passes for each byte of text."""
    overlap: float
    """How often queries find different passages: 1 if they draw at random."""


def retrieved_passages(size: Retrieval, overlap: float) -> float:
    """Return how many different passages the queries find, as if each drew its best K at random."""
    return size.passages * -math.expm1(-overlap * size.entries / size.passages)


def entered(size: Retrieval, parts: int = 1) -> float:
    """Return how many passages enter the best K of a query at some time, over all queries.

    In passages of random order the n-th enters with probability K / n, which adds up to K (1 + ln(N / K)). With the
    corpus in several parts each part has a best K of its own.
    """
    passages = size.passages / parts
    best = min(size.top_k, passages)
    return size.queries * parts * best * (1 + math.log(max(1.0, passages / best)))


def fit_rates(measured: Sequence[MeasuredRetrieval]) -> Rates:
    """Return the rates that explain the measured seconds best; no rate is below zero."""
    sizes = [one.size for one in measured]
    last = measured[-1]
    share = min(0.999, last.retrieved / last.size.passages)
    overlap = -math.log1p(-share) * last.size.passages / last.size.entries
    found = [one.found_bytes for one in measured]
    text = [size.text_bytes for size in sizes]
    return Rates(
        statistics=_fit(measured, "statistics", [float(one.cores) for one in measured], text),
        ranking=_fit(measured, "ranking", [size.queries * size.passages for size in sizes], [*map(entered, sizes)]),
        fetching=_fit(measured, "fetching", text, found),
        driver=_fit(measured, "driver", [size.passages for size in sizes], found, on_one_core=True),
        scratch_share=last.scratch_bytes / last.size.text_bytes,
        overlap=overlap,
    )


def _fit(
    measured: Sequence[MeasuredRetrieval],
    name: str,
    first: Sequence[float],
    second: Sequence[float],
    *,
    on_one_core: bool = False,
) -> Pair:
    """Return the two rates of a pass by least squares of relative errors."""
    from scipy.optimize import nnls

    seconds = np.asarray([one.seconds[name] * (1 if on_one_core else one.cores) for one in measured])
    weights = 1 / np.maximum(seconds, 1e-3)
    columns = np.stack([np.asarray(first, dtype=float), np.asarray(second, dtype=float)], axis=1)
    scales = np.maximum(columns.max(axis=0), 1e-12)
    rates, _ = nnls(columns / scales * weights[:, None], seconds * weights)
    return float(rates[0] / scales[0]), float(rates[1] / scales[1])
