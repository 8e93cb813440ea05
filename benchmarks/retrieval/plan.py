"""The plan of all measurements, and the journal of finished measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.retrieval.engines import COMPILED, ENGINES
from endtask.io.atomic import write_text

REAL_SIZES = {"50MB": 50_000_000, "150MB": 150_000_000, "full": None}
SMALL = {"3MB": 3_000_000}
"""About 2,500 passages, as many as plain Python can score."""
GENERATED_SIZES = {"generated 0.5GB": 500_000_000, "generated 1.5GB": 1_500_000_000, "generated 5GB": 5_000_000_000}
TASKS = ("chemprot", "sciie", "agnews first 4000")
"""All 17,333 queries of agnews would take the slower peers hours."""
SMALL_TASK = "sciie first 50"
GENERATED_TASK = "generated"
TOP_K, LARGE_TOP_K = 1_000, 10_000
REPEATS = 3
COMPARED = ("endtask", "bm25s-numba")
"""The engines of the headline are measured three times at full size; more repeats would take hours."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """A run of an engine; a `cold` run is the first after installation."""

    engine: str
    size: str
    task: str
    top_k: int
    cold: bool
    repeat: int

    def __str__(self) -> str:
        first = ", first run" if self.cold else ""
        return f"{self.engine}, {self.size}, {self.task}, K = {self.top_k}{first}, repeat {self.repeat}"


def plan(engines: Iterable[str], sizes: Iterable[str], tasks: Iterable[str], repeats: int) -> list[Measurement]:
    """Return the requested measurements; all engines have a turn before the next repeat, as the machine may change."""
    requested = set(product(engines, sizes, tasks))
    return [
        measurement
        for repeat in range(1, repeats + 1)
        for measurement in _round(repeat)
        if (measurement.engine, measurement.size, measurement.task) in requested
    ]


def whole_plan() -> list[Measurement]:
    """Return all measurements of the results file."""
    return plan(ENGINES, all_sizes(), all_tasks(), REPEATS)


def all_sizes() -> list[str]:
    """Return the names of the corpora, small to large."""
    return [*SMALL, *REAL_SIZES, *GENERATED_SIZES]


def all_tasks() -> list[str]:
    """Return the names of the sets of queries."""
    return [SMALL_TASK, *TASKS, GENERATED_TASK]


def _round(repeat: int) -> Iterator[Measurement]:
    """Yield the measurements of a repeat, the most important first."""
    for task in TASKS:
        for engine in ENGINES:
            if engine in COMPARED or (repeat == 1 and engine != "rank-bm25"):
                yield Measurement(engine, "full", task, TOP_K, False, repeat)
    if repeat == 1:
        yield from _measured_once()


def _measured_once() -> Iterator[Measurement]:
    for size in GENERATED_SIZES:
        yield Measurement("endtask", size, GENERATED_TASK, TOP_K, False, 1)
    yield Measurement("endtask", "generated 5GB", GENERATED_TASK, LARGE_TOP_K, False, 1)
    for size in REAL_SIZES:
        if size != "full":
            for task in TASKS:
                yield from (Measurement(name, size, task, TOP_K, False, 1) for name in ENGINES if name != "rank-bm25")
    for engine in COMPILED:
        yield Measurement(engine, "full", "sciie", TOP_K, True, 1)
    for engine in ENGINES:
        yield Measurement(engine, "3MB", SMALL_TASK, TOP_K, False, 1)


class Journal:
    """The finished measurements in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> dict[Measurement, Row]:
        """Return the rows of the finished measurements."""
        names = [entry.name for entry in fields(Measurement)]
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        return {Measurement(**{name: row[name] for name in names}): row for row in map(json.loads, lines)}

    def add(self, measurement: Measurement, statistics: Row) -> None:
        """Add a finished measurement."""
        self._write([*self.rows().values(), {**asdict(measurement), **statistics}])

    def forget(self, engines: Iterable[str]) -> None:
        """Remove all measurements of some engines, so that they are repeated."""
        removed = set(engines)
        self._write([row for row in self.rows().values() if row["engine"] not in removed])

    def _write(self, rows: list[Row]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in rows))
