"""The result file of all sub-commands: rows are appended as they arrive, and the summary is computed from all rows."""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks.results_file import RESULTS, Results, read_results, write_results
from benchmarks.robustness import parts

NAME = "robustness"
COMMAND = "python -m benchmarks.robustness"
Row = dict[str, Any]


class Part(Protocol):
    """A sub-command, which is a module of `benchmarks.robustness.parts`."""

    HELP: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options that only this sub-command has."""

    def measure(self, arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
        """Yield rows; `rows` are those of earlier calls, so that a repeated command continues."""

    def summarize(self, rows: list[Row]) -> Row:
        """Return the headline numbers of all rows of this sub-command."""


def all_parts() -> dict[str, Part]:
    """Return the sub-commands by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(parts.__path__))
    return {name: cast(Part, importlib.import_module(f"{parts.__name__}.{name}")) for name in names}


def rows_of(part: str, folder: Path = RESULTS) -> list[Row]:
    """Return the stored rows of a sub-command."""
    return [row for row in _all_rows(folder) if row["part"] == part]


def append(part: str, new: Iterable[Row], known: dict[str, Part], folder: Path = RESULTS) -> Row:
    """Store rows of a sub-command and return the new summary, which has the numbers of all sub-commands."""
    return _store([*_all_rows(folder), *({"part": part, **row} for row in new)], known, folder)


def collect(sources: Iterable[Path], known: dict[str, Part], folder: Path = RESULTS) -> Row:
    """Store the rows of other folders too: of several processes, or of another machine, which each row then names."""
    new = [row for source in sources for row in _with_machine(read_results(NAME, source))]
    return _store([*_all_rows(folder), *new], known, folder)


def _store(rows: list[Row], known: dict[str, Part], folder: Path) -> Row:
    summary: Row = {}
    for name, each in known.items():
        if own := [row for row in rows if row["part"] == name]:
            summary |= each.summarize(own)
    write_results(NAME, COMMAND, rows, summary, folder)
    return summary


def _with_machine(results: Results) -> list[Row]:
    machine, version = results.machine, results.versions
    words = f"{machine.cores} cores, {machine.memory_gb:.0f} GB, Python {version['python']}, torch {version['torch']}"
    return [{**row, "machine": words} for row in results.rows]


def clear(part: str, folder: Path = RESULTS) -> None:
    """Forget the rows of a sub-command, in memory of its next `append`."""
    rows = [row for row in _all_rows(folder) if row["part"] != part]
    path = folder / f"{NAME}.json"
    if rows:
        results = read_results(NAME, folder)
        write_results(NAME, COMMAND, rows, dict(results.summary), folder)
    else:
        path.unlink(missing_ok=True)


def _all_rows(folder: Path) -> list[Row]:
    if not (folder / f"{NAME}.json").exists():
        return []
    return [dict(row) for row in read_results(NAME, folder).rows]
