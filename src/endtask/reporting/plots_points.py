"""Draw charts of single points as SVG: scores with intervals, points over two axes, and maps of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from endtask.reporting.format import shorten
from endtask.reporting.plots import error_bar
from endtask.reporting.svg import BOTTOM, LEFT, RIGHT, STYLES, TITLE_LINE, WIDTH, Scale, legend_of, svg, x_axis, y_axis

_HEIGHT, _MAP_HEIGHT = 240, 330
_ROW, _LABEL_LINE = 38, 16
_LETTER, _LABEL_HEIGHT = 6.3, 13
_LABEL_SHIFTS = (-6, 14, -20, 28, -34, 42)
"""Distances of a label's base line from its point that are tried in turn, in pixels."""
_POINT_SAMPLE = Markup('<circle class="dot series-{style}" cx="{middle:.1f}" cy="{y}" r="4"/>')


@dataclass(frozen=True)
class IntervalRow:
    """A named value with its interval, if it has one, and its text; `style` is the number of its colour."""

    label: str
    value: float
    shown: str
    interval: tuple[float, float] | None = None
    style: int = 0


@dataclass(frozen=True)
class LabelledPoint:
    """A point (x, y) with a label and an interval of y; hollow points have another origin, such as a paper.

    `style` is the number of its colour.
    """

    label: str
    x: float
    y: float
    interval: tuple[float, float] | None = None
    filled: bool = True
    style: int = 0


@dataclass(frozen=True)
class MapPoint:
    """A text on a map: its position, the number of its group, its words for the pointer, and whether it stands out.

    A passage is a small triangle, so that colour alone does not tell it from a row.
    """

    x: float
    y: float
    group: int
    title: str
    emphasized: bool = False
    is_passage: bool = False


def interval_chart(
    rows: Sequence[IntervalRow], *, title: str, x_label: str, x_format: Callable[[float], str]
) -> Markup:
    """Return a row for each value, with its name above and its interval as a line through the dot."""
    ends = [end for row in rows for end in (row.value, *(row.interval or ()))]
    margin = 0.08 * (max(ends) - min(ends)) or 0.05
    across = Scale(min(ends) - margin, max(ends) + margin, 8, WIDTH - 8)
    up = Scale(0, 1, TITLE_LINE + len(rows) * _ROW, TITLE_LINE)
    parts = [_interval_row(row, TITLE_LINE + number * _ROW, across) for number, row in enumerate(rows)]
    words = "; ".join(f"{row.label} {row.shown}" for row in rows)
    axis = x_axis(across, up, x_label, x_format, least_step=0.0)
    return svg(title, words, up.start + BOTTOM, _grid(across, up) + axis + Markup("").join(parts))


def _interval_row(row: IntervalRow, top: float, across: Scale) -> Markup:
    y, x = top + _LABEL_LINE + 10, across(row.value)
    label = Markup('<text class="row-label" x="8" y="{:g}">{} <tspan class="strong">{}</tspan></text>').format(
        top + _LABEL_LINE - 2, shorten(row.label, 52), row.shown
    )
    dot = Markup('<circle class="dot series-{}" cx="{:.1f}" cy="{:g}" r="5.5"/>').format(row.style % STYLES, x, y)
    if row.interval is None:
        return label + dot
    low, high = map(across, row.interval)
    line = Markup('<path class="range series-{}" d="M{:.1f} {:g}H{:.1f}"/>').format(row.style % STYLES, low, y, high)
    return label + line + dot


def _grid(across: Scale, up: Scale) -> Markup:
    line = Markup('<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:g}"/>')
    return Markup("").join(line.format(x=across(tick), top=up.end, bottom=up.start) for tick in across.ticks())


def point_chart(
    points: Sequence[LabelledPoint],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_format: Callable[[float], str],
    y_format: Callable[[float], str],
) -> Markup:
    """Return points with their names and intervals over a logarithmic axis; points that are not filled are hollow."""
    xs = [point.x for point in points]
    ys = [end for point in points for end in (point.y, *(point.interval or ()))]
    margin = 0.1 * (max(ys) - min(ys)) or 0.05
    across = Scale(min(xs) / 1.6, max(xs) * 1.6, LEFT, WIDTH - RIGHT, log=True)
    up = Scale(min(ys) - margin, max(ys) + margin, TITLE_LINE + _HEIGHT, TITLE_LINE)
    axes = y_axis(across, up, y_label, y_format) + x_axis(across, up, x_label, x_format, least_step=0.0)
    labels = _label_positions([(across(point.x), up(point.y), shorten(point.label, 30)) for point in points])
    drawn = [_labelled(point, across, up, *label) for point, label in zip(points, labels, strict=True)]
    words = "; ".join(f"{point.label} {y_format(point.y)} at {x_format(point.x)}" for point in points)
    return svg(title, words, up.start + BOTTOM, axes + Markup("").join(drawn))


def _labelled(point: LabelledPoint, across: Scale, up: Scale, left: float, base: float) -> Markup:
    x, y, style = across(point.x), up(point.y), point.style % STYLES
    bar = error_bar(style, x, up(point.interval[0]), up(point.interval[1])) if point.interval else Markup("")
    text = Markup('<text class="tick" x="{:.1f}" y="{:.1f}">{}</text>').format(left, base, shorten(point.label, 30))
    dot = Markup('<circle class="{} series-{}" cx="{:.1f}" cy="{:.1f}" r="5"/>')
    return bar + dot.format("dot" if point.filled else "hollow", style, x, y) + text


def _label_positions(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """Return left end and base line of each label: next to its point, where it covers no label before it if possible.

    >>> _label_positions([(100.0, 50.0, "one"), (100.0, 50.0, "two")])
    [(109.0, 44.0), (72.1, 44.0)]
    """
    placed: list[tuple[float, float, float]] = []
    for x, y, label in points:
        width = _LETTER * len(label)
        lefts = [left for left in (x + 9, x - 9 - width) if 0 <= left <= WIDTH - width] or [max(0.0, WIDTH - width)]
        tried = [(left, y + shift, width) for shift in _LABEL_SHIFTS for left in lefts]
        free = (one for one in tried if not any(_overlap(one, other) for other in placed))
        placed.append(next(free, tried[0]))
    return [(left, base) for left, base, _ in placed]


def _overlap(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Return whether two labels (left end, base line, width) cover each other."""
    is_next_to = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
    return not is_next_to and abs(one[1] - other[1]) < _LABEL_HEIGHT


def map_chart(points: Sequence[MapPoint], names: Sequence[str], *, title: str) -> Markup:
    """Return a map of texts without axes: a colour for each named group, a ring around points that stand out."""
    entries, legend_height = legend_of(names, _POINT_SAMPLE)
    top = TITLE_LINE + legend_height
    across = _scale_of([point.x for point in points], 8, WIDTH - 8)
    up = _scale_of([point.y for point in points], top + _MAP_HEIGHT, top + 8)
    dots = Markup("").join(_map_dot(point, across(point.x), up(point.y)) for point in points)
    return svg(title, f"{len(points):,} texts", top + _MAP_HEIGHT + 8, entries + dots)


def _map_dot(point: MapPoint, x: float, y: float) -> Markup:
    style = point.group % STYLES
    if point.is_passage:
        triangle = Markup('<path class="map-dot series-{}" d="M{:.1f} {:.1f}l3 5.4h-6z"><title>{}</title></path>')
        return triangle.format(style, x, y - 3, point.title)
    dot = Markup('<circle class="{} series-{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>')
    name, radius = ("map-dot emphasized", 4) if point.emphasized else ("map-dot", 3)
    return dot.format(name, style, x, y, radius, point.title)


def _scale_of(values: Sequence[float], start: float, end: float) -> Scale:
    return Scale(min(values), max(values), start, end)
