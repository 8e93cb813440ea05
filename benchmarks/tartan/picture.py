"""All tables at a glance, as an SVG: how far each way to train lies above masked LM before the task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.compared import is_sure
from benchmarks.results_file import Results
from benchmarks.svg import text
from benchmarks.tartan.cells import AGAINST, BODIES, HEADS, NAMES, PLAIN

Tree = dict[str, Any]
TABLES = ("tapt", "dapt-tapt", "dapt")
COLOURS = {PLAIN: "#999999", "mt": "#0072b2", "meta": "#d55e00"}
LEGEND = {PLAIN: "plain fine-tuning", "mt": "MT: equal weights", "meta": "META: learned weights"}

_LEFT, _TOP, _WIDE, _LINE, _RIGHT, _BELOW = 150, 64, 480, 22, 20, 44
_WIDTH = _LEFT + _WIDE + _RIGHT


def tartan_picture(results: Results) -> str:
    """A dot for each cell, by how many points it lies above the reference of its table; filled where that is sure."""
    groups = [
        (encoder, table, found) for encoder in BODIES for table in TABLES if (found := _leads(results, encoder, table))
    ]
    reach = max([1.0, *(abs(lead) for *_, lines in groups for cells in lines.values() for lead, _ in cells.values())])
    lines_in_all = sum(len(lines) + 1 for *_, lines in groups)
    height = _TOP + _LINE * lines_in_all + _BELOW
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" font-family="sans-serif">',
        "<title>Scores above masked LM before the task, in points: plain fine-tuning, MT and META</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
        *_axis(reach, height - _BELOW),
    ]
    top = _TOP
    for encoder, table, lines in groups:
        drawn.append(text(8, top + 15, f"{HEADS[table].split(':')[0]}, {BODIES[encoder]}", bold=True))
        for number, (task, cells) in enumerate(lines.items(), start=1):
            drawn += _line(top + number * _LINE, NAMES[task], cells, reach)
        top += (len(lines) + 1) * _LINE
    return "\n".join([*drawn, "</svg>", ""])


def _leads(results: Results, encoder: str, table: str) -> dict[str, dict[str, tuple[float, bool]]]:
    """By task and way to train, the points above the reference and whether they are sure."""
    found: dict[str, dict[str, tuple[float, bool]]] = {}
    ways = {PLAIN: PLAIN, f"mt-{AGAINST[table]}": "mt", f"meta-{AGAINST[table]}": "meta"}
    rows: Iterable[Tree] = (row for row in results.rows if row["kind"] == "cell")
    for row in rows:
        if (row["body"], row["table"]) == (encoder, table) and row["cell"] in ways and row.get("lead") is not None:
            lead = (100 * row["lead"], is_sure(row))
            found.setdefault(row["task"], {})[ways[row["cell"]]] = lead
    # A table that has only plain fine-tuning, which all of them share, says nothing of its own.
    return {task: found[task] for task in NAMES if found.get(task, {}).keys() - {PLAIN}}


def _line(top: float, name: str, cells: dict[str, tuple[float, bool]], reach: float) -> Iterator[str]:
    middle = top + _LINE / 2
    yield f'<path d="M{_LEFT} {middle:.1f}h{_WIDE}" stroke="#eeeeee"/>'
    yield text(_LEFT - 10, middle + 4, name, anchor="end")
    for way, (lead, sure) in cells.items():
        fill = COLOURS[way] if sure else "#ffffff"
        place = f'cx="{_across(lead, reach):.1f}" cy="{middle:.1f}"'
        yield f'<circle {place} r="5" fill="{fill}" stroke="{COLOURS[way]}" stroke-width="2"/>'


def _axis(reach: float, bottom: float) -> Iterator[str]:
    step = 1 if reach < 4 else 2
    ticks = range(-step * int(reach / step), int(reach) + 1, step)
    for tick in ticks:
        x, colour = _across(tick, reach), "#777777" if tick == 0 else "#e5e5e5"
        yield f'<path d="M{x:.1f} {_TOP}V{bottom:.1f}" stroke="{colour}"/>'
        yield text(x, bottom + 16, f"{tick:+d}" if tick else "0", anchor="middle")
    yield text(_LEFT + _WIDE / 2, bottom + 34, "points above masked LM before the task", anchor="middle")


def _across(lead: float, reach: float) -> float:
    return _LEFT + _WIDE * (0.5 + 0.47 * lead / reach)


def _legend() -> Iterator[str]:
    for number, (way, words) in enumerate(LEGEND.items()):
        left = 20 + 190 * number
        yield f'<circle cx="{left}" cy="18" r="5" fill="{COLOURS[way]}"/>'
        yield text(left + 12, 22, words, size=13)
    yield text(20, 44, "filled: Holm's p below .05; hollow: not told apart", size=12)
