"""Lines on standard error, or below the cell of a notebook; only warnings when quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from endtask.progress.log import record
from endtask.terminal import printable, without_full_stream

console = Console(stderr=True)
_quiet = False
_silent = False
_warned: set[str] = set()


def set_quiet(quiet: bool) -> None:
    """Silence bars and lines in this process, but not warnings."""
    global _quiet
    _quiet = quiet
    _warned.clear()


def silence() -> None:
    """Print nothing from this process from now on: another process prints the same."""
    global _silent
    _silent = True


def is_quiet() -> bool:
    """Return whether only warnings are printed, or nothing."""
    return _quiet or _silent


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


def say(line: str) -> None:
    """Print a line of progress, unless quiet; it is never part of a command's result."""
    record(line)
    if not _quiet:
        _print(line)


def warn(text: str, *, level: str = "warning") -> None:
    """Print a warning, even when quiet.

    When quiet, prints the same warning once: a comparison does many runs, and no line says which run it is about.
    """
    line = f"{level}: {text}"
    record(line)
    if _quiet and line in _warned:
        return
    _warned.add(line)
    _print(line)


def _print(line: str) -> None:
    if _silent:
        return
    if console.is_jupyter:
        print(line, flush=True)  # as text: notebooks show standard error in red, and rich each line as a block
        return
    with without_full_stream():
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
