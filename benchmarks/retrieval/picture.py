"""Cost against corpus size for every engine, as an SVG drawn from the results file; both axes are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.results_file import Results
from benchmarks.svg import text

COLOURS = {
    "endtask": "#0072b2",
    "bm25s-numba": "#d55e00",
    "bm25s-numpy": "#cc79a7",
    "tantivy": "#009e73",
}
COLUMNS = {
    "chemprot": "ChemProt",
    "sciie": "SciERC",
    "agnews first 4000": "AGNews, 4,000 queries",
    "generated": "generated corpus",
}
FIGURES = {"seconds": ("seconds", 1.0), "peak_memory_bytes": ("peak memory, GB", 1e9)}

_LEFT, _TOP, _WIDE, _HIGH, _GAP, _BELOW = 58, 62, 190, 170, 26, 46
_WIDTH = _LEFT + len(COLUMNS) * (_WIDE + _GAP)
_HEIGHT = _TOP + len(FIGURES) * (_HIGH + _BELOW)
_MARGIN = 1.25  # of room beside the outermost values

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """Maps values between `low` and `high` to pixels, by their logarithms."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten between the ends and a few steps between those."""
        steps = (1, 2, 5) if self.high < 30 * self.low else (1, 3)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        markers = [factor * 10.0**power for power in powers for factor in steps]
        return [mark for mark in markers if self.low <= mark <= self.high]


def retrieval_picture(results: Results) -> str:
    """A column of charts per set of queries: time above, memory below."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"',
        ' font-family="sans-serif">',
        "<title>Bulk BM25: time and peak memory against the size of the corpus, both axes logarithmic</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_legend(),
    ]
    for row, figure in enumerate(FIGURES):
        curves = {column: _curves(results, column, figure) for column in COLUMNS}
        top = _TOP + row * (_HIGH + _BELOW)
        values = [y for engines in curves.values() for points in engines.values() for _, y in points]
        up = Axis(min(values) / _MARGIN, max(values) * _MARGIN, top + _HIGH, top)
        lines += _up_labels(up, FIGURES[figure][0])
        for number, engines in enumerate(curves.values()):
            lines += _chart(_LEFT + number * (_WIDE + _GAP), up, engines)
    return "\n".join([*lines, "</svg>", ""])


def _curves(results: Results, task: str, figure: str) -> dict[str, Points]:
    """For every engine the medians over repeats, by megabytes of text."""
    curves = {}
    for engine in COLOURS:
        rows: list[dict[str, Any]] = [
            row
            for row in results.rows
            if row.get("task") == task
            and row["engine"] == engine
            and figure in row
            and not row["cold"]
            and row["top_k"] == 1_000
        ]
        sizes = sorted({row["text_bytes"] for row in rows})
        unit = FIGURES[figure][1]
        curves[engine] = [
            (size / 1e6, median(row[figure] for row in rows if row["text_bytes"] == size) / unit) for size in sizes
        ]
    return {engine: points for engine, points in curves.items() if points}


def _chart(left: float, up: Axis, engines: dict[str, Points]) -> Iterable[str]:
    sizes = sorted({x for points in engines.values() for x, _ in points})
    across = Axis(sizes[0] / _MARGIN, sizes[-1] * _MARGIN, left, left + _WIDE)
    for tick in up.ticks():
        y = up(tick)
        yield f'<path d="M{left:.1f} {y:.1f}h{_WIDE}" stroke="#e5e5e5"/>'
    yield f'<path d="M{left:.1f} {up.end:.1f}V{up.start:.1f}h{_WIDE}" fill="none" stroke="#777"/>'
    for size in sizes:
        yield f'<path d="M{across(size):.1f} {up.start:.1f}v4" stroke="#777"/>'
        yield text(across(size), up.start + 17, _megabytes(size), "middle")
    for engine, points in engines.items():
        yield from _curve(engine, [(across(x), up(y)) for x, y in points])


def _curve(engine: str, places: Points) -> Iterable[str]:
    width = 3 if engine == "endtask" else 1.5
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{joined}" fill="none" stroke="{COLOURS[engine]}" stroke-width="{width}"/>'
    for x, y in places:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{width + 1}" fill="{COLOURS[engine]}"/>'


def _legend() -> Iterable[str]:
    for number, (engine, colour) in enumerate(COLOURS.items()):
        left = _LEFT + 130 * number
        yield f'<path d="M{left} 16h22" stroke="{colour}" stroke-width="3"/>'
        yield text(left + 28, 20, engine, "start", size=13)
    for number, name in enumerate(COLUMNS.values()):
        yield text(_LEFT + number * (_WIDE + _GAP) + _WIDE / 2, _TOP - 10, name, "middle", size=13)


def _up_labels(up: Axis, name: str) -> Iterable[str]:
    for tick in up.ticks():
        yield text(_LEFT - 6, up(tick) + 4, f"{tick:g}", "end")
    middle = (up.start + up.end) / 2
    yield (
        f'<text transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle" font-size="12" '
        f'fill="#222">{name}</text>'
    )


def _megabytes(size: float) -> str:
    return f"{size / 1e3:.2g} GB" if size >= 490 else f"{size:.0f} MB"
