"""The runs in a folder: state, score and cost of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from endtask.errors import InputError, did_you_mean_path
from endtask.io.processes import is_locked
from endtask.io.run_layout import SETTINGS_FILE, STAGES
from endtask.reporting import format as shown
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder

DEPTH = 4
"""How many folders deep runs are looked for; those of experiments are in `variants/NAME/seed-N`."""


@dataclass(frozen=True)
class RunLine:
    """A run; `score` is the mean on the final split, None before it is known."""

    path: str
    state: str
    task: str = ""
    metric: str | None = None
    score: float | None = None
    std: float | None = None
    seeds: int = 0
    leak_free: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    joules: float = 0.0
    finished: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def list_runs(folder: Path) -> list[RunLine]:
    """Return the runs below a folder, by path; a run that cannot be read has the reason as its state."""
    if not folder.is_dir():
        siblings = folder.parent.iterdir() if folder.parent.is_dir() else ()
        hint = did_you_mean_path(folder, (path.name for path in siblings if path.is_dir()))
        raise InputError("no such folder", path=folder, hint=hint)
    return [run_line(path) for path in run_folders(folder)]


def run_folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield the folders of runs in alphabetical order; a run holds no others."""
    if (folder / SETTINGS_FILE).is_file():
        yield folder
        return
    if not depth:
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
            yield from run_folders(entry, depth - 1)


def run_line(path: Path) -> RunLine:
    """Return a run's state, score and cost; a run that cannot be read has the reason as its state."""
    try:
        return _read(path)
    except InputError as error:
        return RunLine(str(path), f"damaged: {error.message.removeprefix('damaged: ')}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        return RunLine(str(path), f"damaged: {type(error).__name__}: {error}")


def _read(path: Path) -> RunLine:
    run = RunFolder(path)
    cost, results = total_cost(stage_costs(run)), run.results
    summary = results["summary"] if results else {}
    last = next((run.manifests[stage] for stage in reversed(run.manifests)), {})
    return RunLine(
        str(path),
        _state(run),
        run.task_name,
        summary.get("metric"),
        summary.get("mean"),
        summary.get("std"),
        len(results["seeds"]) if results else 0,
        summary.get("leak_free_mean"),
        cost["seconds"],
        int(cost["tokens"]),
        cost["flops"],
        cost["joules"],
        str(last.get("finished", "")),
    )


def _state(run: RunFolder) -> str:
    """Return whether a run is finished, running, stopped inside a stage, or waiting for the next."""
    if is_locked(run.path):
        return f"running ({(run.started or run.missing or ['report'])[0]})"
    if not run.missing:
        return "finished"
    if run.started:
        return f"stopped in {run.started[0]}"
    before = STAGES[: STAGES.index(run.missing[0])]
    return f"until {before[-1]}" if before else "not started"


_HEADINGS = ("run", "state", "score", "leak-free", "time", "tokens", "FLOPs")


def table_lines(runs: Sequence[RunLine]) -> list[str]:
    """Return the runs as the lines of a table."""
    rows = [_HEADINGS, *map(_cells, runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(run: RunLine) -> tuple[str, ...]:
    score = leak_free = "–"
    if run.score is not None and run.metric is not None:
        points = shown.metric_with_spread(run.metric, run.score, run.std or 0.0, run.seeds)
        score = f"{shown.metric_name(run.metric)} {points}"
    if run.leak_free is not None:
        leak_free = shown.score(run.leak_free)
    cost = (shown.duration(run.seconds), shown.count(run.tokens), shown.flops(run.flops)) if run.seconds else ("–",) * 3
    return (run.path, run.state, score, leak_free, *cost)
