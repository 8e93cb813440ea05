"""How a bar looks on a terminal and in a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from endtask.progress.durations import duration
from endtask.progress.messages import console
from endtask.terminal import printable

_SECONDS_BETWEEN_UPDATES = 0.5
"""In notebooks, where each update is a message to the browser."""


class Shown(Protocol):
    """What a view shows of a bar."""

    description: str
    total: float | None
    done: float
    unit: str
    note: str

    def seconds_left(self, now: float) -> float | None:
        """Return the time left; None if unknown."""


@contextmanager
def terminal_view(bar: Shown, overall: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Show a bar of rich, and yield a function that updates it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn() if bar.unit == "" else TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[overall]} {task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        task = progress.add_task(
            printable(bar.description), total=bar.total, completed=int(bar.done), note="", overall=""
        )

        def show() -> None:
            progress.update(task, completed=bar.done, total=bar.total, note=bar.note, overall=overall())

        yield show
        if bar.total is None:
            progress.update(task, total=1, completed=1)  # otherwise the bar would still be animated


@contextmanager
def notebook_view(bar: Shown, overall: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Show a bar of HTML below the cell, and yield a function that updates it; needs no widgets."""
    from IPython.display import HTML, display  # a notebook has it

    handle: Any = display(HTML(bar_html(bar, overall())), display_id=True)
    updated = time.monotonic()

    def show() -> None:
        nonlocal updated
        if time.monotonic() - updated > _SECONDS_BETWEEN_UPDATES:
            handle.update(HTML(bar_html(bar, overall())))
            updated = time.monotonic()

    try:
        yield show
    finally:
        handle.update(HTML(bar_html(bar, "")))


def bar_html(bar: Shown, overall: str) -> str:
    """Return a bar as HTML; all texts are escaped."""
    left = bar.seconds_left(time.monotonic())
    value = "" if bar.total is None else f' max="{max(bar.total, 1):g}" value="{bar.done:g}"'
    remaining = f"about {duration(left)} left" if left else ""
    words = ", ".join(filter(None, (remaining, overall, bar.note)))
    return f"<div><code>{escape(bar.description)}</code> <progress{value}></progress> {escape(words)}</div>"
