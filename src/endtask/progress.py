"""Progress on standard error: bars on a terminal, plain lines elsewhere, only warnings when quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Advance = Callable[..., None]

_console = Console(stderr=True)
_quiet = False
_warned: set[str] = set()


def set_quiet(quiet: bool) -> None:
    """Silence bars and lines in this process, but not warnings."""
    global _quiet
    _quiet = quiet
    _warned.clear()


def say(line: str) -> None:
    """Print a line of progress, unless quiet; it is never part of a command's result."""
    if not _quiet:
        _print(line)


def warn(text: str, *, level: str = "warning") -> None:
    """Print a warning, even when quiet.

    When quiet, prints the same warning once: a comparison does many runs, and no line says which run it is about.
    """
    line = f"{level}: {text}"
    if _quiet and line in _warned:
        return
    _warned.add(line)
    _print(line)


def _print(line: str) -> None:
    _console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def bar(description: str, total: float | None, *, done: int = 0, unit: str = "") -> Iterator[Advance]:
    """Show progress and yield a function `advance(amount, note="")`.

    Without a terminal it prints only `description`, once, so that logs are readable.
    """
    if _quiet or not _console.is_terminal:
        say(description)
        yield lambda amount=1, note="": None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn() if unit == "" else TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=_console, transient=False) as progress:
        task = progress.add_task(description, total=total, completed=done, note="")
        yield lambda amount=1, note="": progress.update(task, advance=amount, **({"note": note} if note else {}))
        if total is None:
            progress.update(task, total=1, completed=1)  # otherwise the bar would still be animated


def duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> duration(0.25), duration(12.34), duration(200), duration(7260)
    ('0.2 s', '12 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    minutes, remainder = divmod(rounded, 60)
    if rounded < 3600:
        return f"{minutes} min {remainder} s" if minutes else f"{remainder} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


@contextmanager
def quiet(silent: bool = True) -> Iterator[None]:
    """Silence bars and lines within the block, but not warnings."""
    global _quiet
    before = _quiet
    _quiet = before or silent
    try:
        yield
    finally:
        _quiet = before
