"""Draw charts as SVG for pages and docs: lines, grouped horizontal bars and rows of dots.

chart.css defines colours and dashes by class (`series-0`, `series-1`, ...), for light screens, dark screens and print.
Every chart has its title and its numbers as text for screen readers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from endtask.reporting.format import shorten

WIDTH = 480
STYLES = 6  # number of series styles in chart.css

_LEFT, _RIGHT, _BOTTOM, _PLOT_HEIGHT = 52, 12, 40, 190
_LEGEND_LINE, _TITLE_LINE = 18, 26
_LETTER = 6.6  # mean width of a letter of the legend
_TOO_LARGE = 1e100  # far below values whose differences and margins overflow
_SMALLEST_SPAN = 1e-100  # values in a smaller span count as equal
_MOST_MARKERS = 25
_BAR, _BAR_GAP, _BAR_LABEL, _VALUE_WIDTH = 13, 3, 20, 60
_DOT_LABEL, _DOT_ROW = 150, 20
_LOG_MARGIN = 1.25  # factor between the extreme values and the ends of a logarithmic axis

_LINE_SAMPLE = Markup('<line class="line series-{style}" x1="{x:.1f}" x2="{end:.1f}" y1="{y}" y2="{y}"/>')
_DOT_SAMPLE = Markup('<circle class="dot series-{style}" cx="{middle:.1f}" cy="{y}" r="5"/>')
_BAR_SAMPLE = Markup('<rect class="bar series-{style}" x="{x:.1f}" y="{top}" width="18" height="10" rx="2"/>')


@dataclass(frozen=True)
class Series:
    """A named line of points (x, y) in the order of x; values that are not finite or too large are left out."""

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def finite(self) -> tuple[tuple[float, float], ...]:
        """The points that can be drawn."""
        return tuple((x, y) for x, y in self.points if abs(x) < _TOO_LARGE and abs(y) < _TOO_LARGE)


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to pixels from `start` to `end`; a single value is in the middle.

    >>> Scale(0, 10, 100, 200)(2.5), Scale(3, 3, 100, 200)(3), Scale(1, 100, 100, 200, log=True)(10)
    (125.0, 150.0, 150.0)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        fraction = (value - self.low) / (self.high - self.low)
        if self.log:
            fraction = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + fraction * (self.end - self.start)

    def ticks(self, least_step: float = 0.0) -> tuple[float, ...]:
        """Return round values for the labels of the axis."""
        return log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high, least_step=least_step)


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


def round_ticks(low: float, high: float, most: int = 6, least_step: float = 0.0) -> tuple[float, ...]:
    """Return at most `most` round values from `low` to `high`, in steps of 1, 2 or 5 times a power of ten.

    >>> round_ticks(0.3, 9.2), round_ticks(1, 2, least_step=1)
    ((2.0, 4.0, 6.0, 8.0), (1, 2))
    """
    span = high - low
    if span < _SMALLEST_SPAN or not math.isfinite(span):
        return (low,)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(unit * power for unit in (1, 2, 5, 10, 20) if span / (unit * power) <= most - 1)
    step = max(step, least_step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return ticks or (low,)


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return powers of ten from `low` to `high`, with steps between them in a short range, or else round values.

    >>> log_ticks(0.8, 12), log_ticks(5, 400), log_ticks(1.3, 1.7)
    ((1.0, 2.0, 5.0, 10.0), (10.0, 30.0, 100.0, 300.0), (1.3, 1.4, 1.5, 1.6, 1.7))
    """
    steps = (1, 2, 5) if high < 30 * low else (1, 3) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = tuple(tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high)
    return ticks if len(ticks) > 1 else tuple(round(tick, 12) for tick in round_ticks(low, high))


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
) -> Markup:
    """Return a chart with a line per series, dots for few points, and a legend for several series.

    With `log` both axes are logarithmic, and all values must be positive.
    """
    drawn = [(number, line) for number, line in enumerate(series) if line.finite]
    legend, legend_height = (
        _legend([line.name for line in series], _LINE_SAMPLE) if len(series) > 1 else (Markup(""), 0)
    )
    top = _TITLE_LINE + legend_height
    height = top + _PLOT_HEIGHT + _BOTTOM
    if not drawn:
        nothing = Markup('<text class="tick" x="{}" y="{}">no values</text>').format(_LEFT, top + _PLOT_HEIGHT / 2)
        return _svg(title, "no values", height, nothing)
    xs = [x for _, line in drawn for x, _ in line.finite]
    ys = [y for _, line in drawn for _, y in line.finite]
    margin = 0.04 * (max(ys) - min(ys)) or 0.05 * abs(max(ys)) or 0.5
    factor = _LOG_MARGIN if log else 1.0
    y_ends = (min(ys) / factor, max(ys) * factor) if log else (min(ys) - margin, max(ys) + margin)
    across = Scale(min(xs) / factor, max(xs) * factor, _LEFT, WIDTH - _RIGHT, log)
    up = Scale(*y_ends, top + _PLOT_HEIGHT, top, log)
    axes = _y_axis(across, up, y_label, y_format) + _x_axis(across, up, x_label, x_format)
    lines = Markup("").join(_line(number % STYLES, line, across, up) for number, line in drawn)
    return _svg(title, "; ".join(_in_words(line, y_format) for _, line in drawn), height, legend + axes + lines)


def bar_chart(groups: Sequence[BarGroup], names: Sequence[str], *, title: str) -> Markup:
    """Return groups of horizontal bars, with whiskers for intervals and the value at the end of each bar."""
    legend, legend_height = _legend(names, _BAR_SAMPLE) if len(names) > 1 else (Markup(""), 0)
    top = _TITLE_LINE + legend_height
    longest = max((group.end(bar) for group in groups for bar in range(len(group.values))), default=0.0)
    along = Scale(0, longest or 1.0, 0, WIDTH - _VALUE_WIDTH)
    group_height = _BAR_LABEL + len(names) * (_BAR + _BAR_GAP) + 6
    bars = Markup("").join(_bars(group, top + number * group_height, along) for number, group in enumerate(groups))
    words = "; ".join(
        f"{group.label}: {', '.join(f'{name} {shown}' for name, shown in zip(names, group.shown, strict=True))}"
        for group in groups
    )
    return _svg(title, words or "no values", top + len(groups) * group_height, legend + bars)


def dot_chart(rows: Sequence[DotRow], names: Sequence[str], *, title: str, x_label: str) -> Markup:
    """Return rows of dots over a shared axis with zero in the middle, and a style for each name."""
    legend, legend_height = _legend(names, _DOT_SAMPLE)
    reach = 1.05 * max((abs(value) for row in rows for _, value, _ in row.dots), default=1.0)
    top = _TITLE_LINE + legend_height
    across = Scale(-reach, reach, _DOT_LABEL, WIDTH - _RIGHT)
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
    axis = _x_axis(across, up, x_label, lambda value: f"{value:+g}" if value else "0")
    return _svg(title, words or "no values", up.start + _BOTTOM, legend + lines + zero + axis + dots)


def picture(title: str, charts: Sequence[Markup], columns: int = 1) -> str:
    """Return charts in rows of `columns` as a self-contained SVG file, which is light or dark like the screen."""
    heights = [float(match[1]) for chart in charts if (match := re.search(r'height="([\d.]+)"', chart))]
    gap, placed, bottom = 24, [], 12.0
    for first in range(0, len(charts), columns):
        for column, chart in enumerate(charts[first : first + columns]):
            panel = f'<svg class="chart" x="{gap + column * (WIDTH + gap)}" y="{bottom:g}"'
            placed.append(chart.replace(Markup('<svg class="chart"'), Markup(panel), 1))
        bottom += max(heights[first : first + columns]) + 12
    style = Path(__file__).with_name("chart.css").read_text(encoding="utf-8")
    document = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img" '
        'font-family="sans-serif">\n'
        "<title>{title}</title>\n<style>\n{style}</style>\n"
        '<rect width="100%" height="100%" style="fill: var(--page)"/>\n{charts}\n</svg>\n'
    )
    width = gap + min(columns, len(charts)) * (WIDTH + gap)
    charts_below = Markup("\n").join(placed)
    return str(document.format(width=width, height=bottom, title=title, style=Markup(style), charts=charts_below))


def _svg(title: str, description: str, height: float, content: Markup) -> Markup:
    return Markup(
        '<svg class="chart" width="{w}" height="{h:g}" viewBox="0 0 {w} {h:g}" role="img" '
        'aria-label="{title}: {words}"><title>{title}</title>'
        '<text class="chart-title" x="0" y="15">{title}</text>{content}</svg>'
    ).format(w=WIDTH, h=height, title=title, words=description, content=content)


def _legend(names: Sequence[str], sample: Markup) -> tuple[Markup, int]:
    """Return entries with samples of their styles, on as many lines as they need, and the height of the lines."""
    x, line, entries = 0.0, 0, []
    for number, name in enumerate(names):
        shown = shorten(name, 40)
        width = 30 + _LETTER * len(shown)
        if x and x + width > WIDTH:
            x, line = 0.0, line + 1
        y = _TITLE_LINE + 8 + line * _LEGEND_LINE
        entries.append(
            sample.format(style=number % STYLES, x=x, middle=x + 9, end=x + 18, y=y, top=y - 5)
            + Markup('<text class="tick" x="{:.1f}" y="{}">{}</text>').format(x + 23, y + 4, shown)
        )
        x += width + 8
    return Markup("").join(entries), (line + 1) * _LEGEND_LINE + 8


def _y_axis(across: Scale, up: Scale, label: str, y_format: Callable[[float], str]) -> Markup:
    template = Markup(
        '<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        '<text class="tick end" x="{text:g}" y="{base:.1f}">{value}</text>'
    )
    coordinates = {"left": across.start, "right": across.end, "text": across.start - 6}
    parts = [template.format(y=up(v), base=up(v) + 4, value=y_format(v), **coordinates) for v in up.ticks()]
    frame = Markup(
        '<path class="axis" d="M{left:g} {top:g}V{bottom:g}"/>'
        '<text class="tick middle" transform="translate(11 {centre:g}) rotate(-90)">{label}</text>'
    )
    centre = (up.start + up.end) / 2
    return Markup("").join(parts) + frame.format(
        left=across.start, top=up.end, bottom=up.start, centre=centre, label=label
    )


def _x_axis(across: Scale, up: Scale, label: str, x_format: Callable[[float], str]) -> Markup:
    template = Markup(
        '<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:g}" y2="{below:g}"/>'
        '<text class="tick middle" x="{x:.1f}" y="{base:g}">{value}</text>'
    )
    coordinates = {"bottom": up.start, "below": up.start + 4, "base": up.start + 17}
    parts = [template.format(x=across(v), value=x_format(v), **coordinates) for v in across.ticks(least_step=1)]
    frame = Markup(
        '<path class="axis" d="M{left:g} {bottom:g}H{right:g}"/>'
        '<text class="tick middle" x="{middle:g}" y="{under:g}">{label}</text>'
    )
    middle = (across.start + across.end) / 2
    return Markup("").join(parts) + frame.format(
        left=across.start, bottom=up.start, right=across.end, middle=middle, under=up.start + 34, label=label
    )


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
    if len(coordinates) > _MOST_MARKERS:
        return path
    dot = Markup('<circle class="dot series-{}" cx="{:.1f}" cy="{:.1f}" r="3"/>')
    return path + Markup("").join(dot.format(style, x, y) for x, y in coordinates)


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
