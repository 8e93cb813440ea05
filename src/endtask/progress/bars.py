"""Progress with the time left: bars on a terminal and in notebooks, elsewhere a line every half minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from endtask.progress.durations import duration
from endtask.progress.log import is_recorded, record, record_progress
from endtask.progress.messages import console, is_quiet, say
from endtask.progress.views import notebook_view, terminal_view

Advance = Callable[..., None]
SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_STATES = 1.0


@dataclass
class _Stage:
    """A stage of a run, and the seconds that later stages are expected to take; None if unknown."""

    name: str
    number: int
    count: int
    later: float | None
    started: float = field(default_factory=lambda: time.monotonic())


@dataclass
class _Bar:
    """Something that is counted. `after` is how much more of the same kind follows it."""

    description: str
    total: float | None
    done: float
    unit: str
    after: float
    note: str = ""
    started: float = field(default_factory=lambda: time.monotonic())
    first: float = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.done

    def seconds_left(self, now: float, *, with_after: bool = False) -> float | None:
        """Return the time left at the mean speed so far; None before there is one."""
        if self.total is None or self.done <= self.first:
            return None
        rest = max(0.0, self.total - self.done) + (self.after if with_after else 0.0)
        return (now - self.started) / (self.done - self.first) * rest


_stage: _Stage | None = None
_bars: list[_Bar] = []
"""The bars that are shown, the innermost last."""
_beating = False


@contextmanager
def stage_of_run(name: str, number: int, count: int, *, later: float | None) -> Iterator[None]:
    """Show the number of a stage, and the time left of the run; `later` are the seconds of later stages, if known."""
    global _stage
    before = _stage
    _stage = _Stage(name, number, count, later)
    try:
        with _heartbeat():
            yield
    finally:
        _stage = before


@contextmanager
def bar(
    description: str, total: float | None, *, done: float = 0, unit: str = "", after: float = 0.0
) -> Iterator[Advance]:
    """Show progress and yield a function `advance(amount, note="", total=None)`.

    Without a terminal it prints `description`, and every half minute how far it is. `after` is how much of the same
    kind follows this bar, such as the steps of other seeds; it counts for the time left of the run.
    """
    state = _Bar(description, total, done, unit, after)
    view = terminal_view if console.is_terminal else notebook_view if console.is_jupyter else None
    if is_quiet() or view is None:
        say(description)
    shown = nullcontext(_show_nothing) if is_quiet() or view is None else view(state, overall_left)
    _bars.append(state)
    try:
        with shown as show, _heartbeat():
            yield _advance(state, show)
    finally:
        _bars.remove(state)


def _advance(state: _Bar, show: Callable[[], None]) -> Advance:
    lock = threading.Lock()  # some bars are advanced by several threads

    def advance(amount: float = 1, note: str = "", total: float | None = None) -> None:
        with lock:
            state.done += amount
            state.note = note or state.note
            state.total = total if total is not None else state.total
            show()

    return advance


def _show_nothing() -> None:
    """Show nothing: lines come from the heartbeat."""


def progress_line(now: float) -> str:
    """Return the state of the innermost bar, or of the stage, with the time left."""
    stage, state = _stage, _innermost()
    if state is None:
        elapsed = f"{stage.name}: {duration(now - stage.started)} so far" if stage else ""
        return ", ".join(filter(None, (elapsed, overall_left(now))))
    left = state.seconds_left(now)
    parts = (
        f"{state.description}: {_amount(state, now)}",
        f"about {duration(left)} left" if left is not None else "",
        overall_left(now),
        state.note,
    )
    return ", ".join(filter(None, parts))


def progress_values(now: float) -> dict[str, Any]:
    """Return the state of the stage and of the innermost bar as plain values; None for what is not known."""
    stage, state = _stage, _innermost()
    return {
        "stage": stage.name if stage else None,
        "number": stage.number if stage else None,
        "stages": stage.count if stage else None,
        "description": state.description if state else None,
        "done": state.done if state else None,
        "total": state.total if state else None,
        "note": state.note if state else "",
        "seconds_left": state.seconds_left(now) if state else None,
        "seconds_left_of_run": _seconds_left_of_run(now),
    }


def _amount(state: _Bar, now: float) -> str:
    if state.total is None:
        return f"{duration(now - state.started)} so far"
    share = f"{min(1.0, state.done / max(state.total, 1)):.0%}"
    return share if state.unit else f"{state.done:,.0f} of {state.total:,.0f} ({share})"


def overall_left(now: float | None = None) -> str:
    """Return the number of the stage and the time left of the run; empty outside a run."""
    stage = _stage
    if stage is None:
        return ""
    number = f"stage {stage.number} of {stage.count}"
    left = _seconds_left_of_run(time.monotonic() if now is None else now)
    return number if left is None else f"{number}, about {duration(left)} left in all"


def _seconds_left_of_run(now: float) -> float | None:
    stage, state = _stage, _innermost()
    current = state.seconds_left(now, with_after=True) if state else None
    if stage is None or stage.later is None or (current is None and stage.later == 0):
        return None
    return stage.later + (current or 0.0)


def _innermost() -> _Bar | None:
    """Return the innermost bar; another thread may end it at any moment."""
    return next(reversed(_bars), None)


@contextmanager
def _heartbeat() -> Iterator[None]:
    """Print or record a line every half minute and record the state every second, from one thread for all blocks."""
    global _beating
    if _beating or (not is_recorded() and (is_quiet() or console.is_terminal or console.is_jupyter)):
        yield
        return
    _beating, stop = True, threading.Event()
    thread = threading.Thread(target=_beat, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        _beating = False


def _beat(stop: threading.Event) -> None:
    printed = time.monotonic()
    while not stop.wait(min(SECONDS_BETWEEN_STATES, SECONDS_BETWEEN_LINES)):
        now = time.monotonic()
        record_progress(progress_values(now))
        if now - printed < SECONDS_BETWEEN_LINES:
            continue
        printed, line = now, progress_line(now)
        if console.is_terminal or console.is_jupyter:
            record(line)
        else:
            say(line)
