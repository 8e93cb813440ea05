"""Draw charts as SVG for pages and docs: lines, grouped horizontal bars and rows of dots.

plots_points.py has the charts of single points. `svg.picture` makes a file of charts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from endtask.reporting.format import shorten
from endtask.reporting.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    STYLES,
    TITLE_LINE,
    WIDTH,
    Scale,
    legend_of,
    svg,
    x_axis,
    y_axis,
)

_PLOT_HEIGHT = 190
_TOO_LARGE = 1e100  # far below values whose differences and margins overflow
_MOST_MARKERS = 25
_BAR_DISTANCE = 2.5
_BAR, _BAR_GAP, _BAR_LABEL, _VALUE_WIDTH = 13, 3, 20, 60
_DOT_LABEL, _DOT_ROW = 150, 20
_LOG_MARGIN = 1.25  # factor between the extreme values and the ends of a logarithmic axis

_LINE_SAMPLE = Markup('<line class="line series-{style}" x1="{x:.1f}" x2="{end:.1f}" y1="{y}" y2="{y}"/>')
_DOT_SAMPLE = Markup('<circle class="dot series-{style}" cx="{middle:.1f}" cy="{y}" r="5"/>')
_BAR_SAMPLE = Markup('<rect class="bar series-{style}" x="{x:.1f}" y="{top}" width="18" height="10" rx="2"/>')


@dataclass(frozen=True)
class Series:
    """A named line of points (x, y) in the order of x; values that are not finite or too large are left out.

    `intervals` has the lower and upper end of an error bar for each point, or is empty. `is_reference` draws a thin
    line without dots, such as a diagonal; it comes last and is not in the legend.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    intervals: tuple[tuple[float, float], ...] = ()
    is_reference: bool = False

    @property
    def finite(self) -> tuple[tuple[float, float], ...]:
        """The points that can be drawn."""
        return tuple((x, y) for x, y in self.points if abs(x) < _TOO_LARGE and abs(y) < _TOO_LARGE)

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends of all error bars."""
        return tuple(end for interval in self.intervals for end in interval)


@dataclass(frozen=True)
class BarGroup:
    """A label with a value for each of the chart's bars, the text of each value, and intervals where known."""

    label: str
    values: tuple[float, ...]
    shown: tuple[str, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()

    def end(self, bar: int) -> float:
        """Return the largest value of a bar and its interval."""
        interval = self.intervals[bar] if self.intervals else None
        return max(self.values[bar], interval[1]) if interval else self.values[bar]


@dataclass(frozen=True)
class DotRow:
    """A row of a dot chart: (index of a name, value, whether the dot is filled) for each dot.

    A row without dots is a heading.
    """

    label: str
    dots: tuple[tuple[int, float, bool], ...] = ()


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_format: Callable[[float], str] = lambda value: f"{value:,g}",
    y_format: Callable[[float], str] = lambda value: f"{value:.3g}",
    log: bool = False,
    x_step: float = 1.0,
) -> Markup:
    """Return a chart with a line per series, dots for few points, and a legend for several series.

    With `log` both axes are logarithmic, and all values must be positive. Ticks of x are at least `x_step` apart.
    """
    drawn = [(number, line) for number, line in enumerate(series) if line.finite]
    named = [line.name for line in series if not line.is_reference]
    legend, legend_height = legend_of(named, _LINE_SAMPLE) if len(named) > 1 else (Markup(""), 0)
    top = TITLE_LINE + legend_height
    height = top + _PLOT_HEIGHT + BOTTOM
    if not drawn:
        nothing = Markup('<text class="tick" x="{}" y="{}">no values</text>').format(LEFT, top + _PLOT_HEIGHT / 2)
        return svg(title, "no values", height, nothing)
    xs = [x for _, line in drawn for x, _ in line.finite]
    ys = [y for _, line in drawn for _, y in line.finite] + [end for _, line in drawn for end in line.ends]
    margin = 0.04 * (max(ys) - min(ys)) or 0.05 * abs(max(ys)) or 0.5
    factor = _LOG_MARGIN if log else 1.0
    y_ends = (min(ys) / factor, max(ys) * factor) if log else (min(ys) - margin, max(ys) + margin)
    across = Scale(min(xs) / factor, max(xs) * factor, LEFT, WIDTH - RIGHT, log)
    up = Scale(*y_ends, top + _PLOT_HEIGHT, top, log)
    axes = y_axis(across, up, y_label, y_format) + x_axis(across, up, x_label, x_format, x_step)
    lines = Markup("").join(_line(number % STYLES, line, across, up) for number, line in drawn)
    return svg(title, "; ".join(_in_words(line, y_format) for _, line in drawn), height, legend + axes + lines)


def bar_chart(groups: Sequence[BarGroup], names: Sequence[str], *, title: str) -> Markup:
    """Return groups of horizontal bars, with whiskers for intervals and the value at the end of each bar."""
    legend, legend_height = legend_of(names, _BAR_SAMPLE) if len(names) > 1 else (Markup(""), 0)
    top = TITLE_LINE + legend_height
    longest = max((group.end(bar) for group in groups for bar in range(len(group.values))), default=0.0)
    along = Scale(0, longest or 1.0, 0, WIDTH - _VALUE_WIDTH)
    group_height = _BAR_LABEL + len(names) * (_BAR + _BAR_GAP) + 6
    bars = Markup("").join(_bars(group, top + number * group_height, along) for number, group in enumerate(groups))
    words = "; ".join(
        f"{group.label}: {', '.join(f'{name} {shown}' for name, shown in zip(names, group.shown, strict=True))}"
        for group in groups
    )
    return svg(title, words or "no values", top + len(groups) * group_height, legend + bars)


def dot_chart(rows: Sequence[DotRow], names: Sequence[str], *, title: str, x_label: str) -> Markup:
    """Return rows of dots over a shared axis with zero in the middle, and a style for each name."""
    legend, legend_height = legend_of(names, _DOT_SAMPLE)
    reach = 1.05 * max((abs(value) for row in rows for _, value, _ in row.dots), default=1.0)
    top = TITLE_LINE + legend_height
    across = Scale(-reach, reach, _DOT_LABEL, WIDTH - RIGHT)
    up = Scale(len(rows), 0, top + len(rows) * _DOT_ROW, top)
    lines = Markup("").join(
        Markup('<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:g}"/>').format(
            x=across(tick), top=up.end, bottom=up.start
        )
        for tick in across.ticks()
    )
    zero = Markup('<path class="axis" d="M{:.1f} {:g}V{:g}"/>').format(across(0), up.end, up.start)
    dots = Markup("").join(_dots(row, up(number + 0.5), across) for number, row in enumerate(rows))
    words = "; ".join(
        f"{row.label}: {', '.join(f'{names[name]} {value:+.1f}' for name, value, _ in row.dots)}"
        for row in rows
        if row.dots
    )
    axis = x_axis(across, up, x_label, lambda value: f"{value:+g}" if value else "0")
    return svg(title, words or "no values", up.start + BOTTOM, legend + lines + zero + axis + dots)


def _dots(row: DotRow, middle: float, across: Scale) -> Markup:
    if not row.dots:
        return Markup('<text class="strong" x="0" y="{:g}">{}</text>').format(middle + 4, row.label)
    label = Markup(
        '<text class="tick end" x="{x:g}" y="{base:g}">{label}</text>'
        '<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:g}" y2="{y:g}"/>'
    ).format(x=across.start - 8, base=middle + 4, label=row.label, left=across.start, right=across.end, y=middle)
    dot = Markup('<circle class="{} series-{}" cx="{:.1f}" cy="{:g}" r="5"/>')
    dots = (
        dot.format("dot" if filled else "hollow", name % STYLES, across(value), middle)
        for name, value, filled in row.dots
    )
    return label + Markup("").join(dots)


def _line(style: int, line: Series, across: Scale, up: Scale) -> Markup:
    coordinates = [(across(x), up(y)) for x, y in line.finite]
    path = Markup('<polyline class="line series-{}" points="{}"><title>{}</title></polyline>').format(
        style, " ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates), line.name
    )
    if line.intervals:
        shift = _BAR_DISTANCE * ((style + 1) // 2) * (-1) ** style  # so that bars of equal x do not cover each other
        path += Markup("").join(
            error_bar(style, across(x) + shift, up(low), up(high))
            for (x, _), (low, high) in zip(line.points, line.intervals, strict=True)
        )
    if line.is_reference:
        return path.replace(Markup('class="line'), Markup('class="reference line'), 1)
    if len(coordinates) > _MOST_MARKERS:
        return path
    dot = Markup('<circle class="dot series-{}" cx="{:.1f}" cy="{:.1f}" r="3"/>')
    return path + Markup("").join(dot.format(style, x, y) for x, y in coordinates)


def error_bar(style: int, x: float, bottom: float, top: float) -> Markup:
    """Return a vertical line between the ends of an interval, in pixels, with a short stroke at each end."""
    path = Markup('<path class="whisker series-{}" d="M{:.1f} {:.1f}h6M{:.1f} {:.1f}h6M{:.1f} {:.1f}V{:.1f}"/>')
    return path.format(style, x - 3, bottom, x - 3, top, x, bottom, top)


def _bars(group: BarGroup, top: float, along: Scale) -> Markup:
    label = Markup('<text class="tick" x="0" y="{:g}">{}<title>{}</title></text>').format(
        top + 14, shorten(group.label, 64), group.label
    )
    bars = []
    for number, (value, shown) in enumerate(zip(group.values, group.shown, strict=True)):
        y = top + _BAR_LABEL + number * (_BAR + _BAR_GAP)
        bar = Markup(
            '<rect class="bar series-{}" x="0" y="{:g}" width="{:.1f}" height="{}" rx="2"/>'
            '<text class="tick" x="{:.1f}" y="{:g}">{}</text>'
        )
        end = along(group.end(number)) + 6
        bars.append(bar.format(number % STYLES, y, along(value), _BAR, end, y + _BAR - 2, shown))
        interval = group.intervals[number] if group.intervals else None
        if interval is not None:
            bars.append(_whisker(along(interval[0]), along(interval[1]), y))
    return label + Markup("").join(bars)


def _whisker(low: float, high: float, top: float) -> Markup:
    """Return a line over the middle of a bar from end to end of an interval, with a short stroke at each end."""
    middle, reach = top + _BAR / 2, _BAR / 4
    strokes = f"M{low:.1f} {middle - reach:g}v{2 * reach:g}M{high:.1f} {middle - reach:g}v{2 * reach:g}"
    return Markup('<path class="whisker" d="{}M{:.1f} {:g}H{:.1f}"/>').format(strokes, low, middle, high)


def _in_words(line: Series, y_format: Callable[[float], str]) -> str:
    first, last = line.finite[0][1], line.finite[-1][1]
    return f"{line.name} from {y_format(first)} to {y_format(last)}"
