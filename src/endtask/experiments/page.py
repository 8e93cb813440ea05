"""Tables of experiments for the terminal, and the HTML page with tables and charts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from endtask.io.atomic import write_text
from endtask.reporting.render import render
from endtask.terminal import printable

_WIDTH_WITHOUT_TERMINAL = 200


@dataclass(frozen=True)
class Table:
    """Rows of cells under column names; cells are text, which is escaped, or HTML for the page only.

    The first column is text; the others are numbers unless listed in `text_columns`.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Markup]]
    caption: str = ""
    highlighted: frozenset[int] = frozenset()
    text_columns: frozenset[int] = frozenset()

    def is_number(self, column: int) -> bool:
        """Return whether a column has numbers."""
        return column > 0 and column not in self.text_columns


@dataclass(frozen=True)
class Section:
    """A part of the page: charts, then tables, then notes."""

    heading: str
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A page: the result in a sentence, notes about it, and sections."""

    kind: str
    title: str
    verdict: str
    notes: Sequence[str]
    sections: Sequence[Section]


def write_page(page: Page, path: Path) -> Path:
    """Write a self-contained page. Return its path."""
    write_text(path, render("experiment.html.jinja", page=page))
    return path


def link(target: str, text: str) -> Markup:
    """Return a link for a cell of a page.

    >>> print(link("trials/000/report.html", "a < b"))
    <a href="trials/000/report.html">a &lt; b</a>
    """
    return Markup('<a href="{}">{}</a>').format(target, text)


def print_tables(tables: Iterable[Table], notes: Iterable[str] = ()) -> None:
    """Print tables and notes on standard output, highlighted rows in bold."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    for table in tables:
        drawn = RichTable(box=box.SIMPLE_HEAD)
        for column, name in enumerate(table.columns):
            drawn.add_column(printable(name), justify="right" if table.is_number(column) else "left")
        for index, cells in enumerate(table.rows):
            shown = [printable(cell).replace("[", r"\[") for cell in cells]
            drawn.add_row(*shown, style="bold" if index in table.highlighted else "")
        if table.caption:
            console.print(printable(table.caption), markup=False, soft_wrap=True)
        console.print(drawn)
    for note in notes:
        console.print(printable(note), markup=False, soft_wrap=True)
