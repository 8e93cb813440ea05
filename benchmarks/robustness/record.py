"""The result file of all sub-commands: rows are appended as they arrive, and the summary is computed from all rows."""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks.results_file import RESULTS, read_results, write_results
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
    rows = [*_all_rows(folder), *({"part": part, **row} for row in new)]
    summary: Row = {}
    for name, each in known.items():
        if own := [row for row in rows if row["part"] == name]:
            summary |= each.summarize(own)
    write_results(NAME, COMMAND, rows, summary, folder)
    return summary


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
