"""The parts that all charts share: scales, round values on axes, legends, and charts as files.

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
LEFT, RIGHT, BOTTOM, TITLE_LINE = 52, 18, 40, 26
"""Margins around the area of the values, in pixels, and the height of a title."""

_LEGEND_LINE = 18
_MOST_LOG_TICKS = 8
_LETTER = 6.6  # mean width of a letter of the legend
_SMALLEST_SPAN = 1e-100  # values in a smaller span count as equal


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
    """Return some powers of ten from `low` to `high`, with steps between in a short range, or else round values.

    >>> log_ticks(0.8, 12), log_ticks(5, 400), log_ticks(1.3, 1.7)
    ((1.0, 2.0, 5.0, 10.0), (10.0, 30.0, 100.0, 300.0), (1.3, 1.4, 1.5, 1.6, 1.7))
    """
    steps = (1, 2, 5) if high < 30 * low else (1, 3) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = tuple(tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high)
    ticks = ticks[:: math.ceil(len(ticks) / _MOST_LOG_TICKS)] if ticks else ticks
    return ticks if len(ticks) > 1 else tuple(round(tick, 12) for tick in round_ticks(low, high))


def svg(title: str, description: str, height: float, content: Markup) -> Markup:
    """Return a chart of `WIDTH` pixels with a title; `description` is read by screen readers."""
    return Markup(
        '<svg class="chart" width="{w}" height="{h:g}" viewBox="0 0 {w} {h:g}" role="img" '
        'aria-label="{title}: {words}"><title>{title}</title>'
        '<text class="chart-title" x="0" y="15">{title}</text>{content}</svg>'
    ).format(w=WIDTH, h=height, title=title, words=description, content=content)


def legend_of(names: Sequence[str], sample: Markup) -> tuple[Markup, int]:
    """Return entries with samples of their styles, on as many lines as they need, and the height of the lines."""
    x, line, entries = 0.0, 0, []
    for number, name in enumerate(names):
        shown = shorten(name, 40)
        width = 30 + _LETTER * len(shown)
        if x and x + width > WIDTH:
            x, line = 0.0, line + 1
        y = TITLE_LINE + 8 + line * _LEGEND_LINE
        entries.append(
            sample.format(style=number % STYLES, x=x, middle=x + 9, end=x + 18, y=y, top=y - 5)
            + Markup('<text class="tick" x="{:.1f}" y="{}">{}</text>').format(x + 23, y + 4, shown)
        )
        x += width + 8
    return Markup("").join(entries), (line + 1) * _LEGEND_LINE + 8


def y_axis(across: Scale, up: Scale, label: str, y_format: Callable[[float], str]) -> Markup:
    """Return the line left of the values, with a line across for each tick, their values and a label."""
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


def x_axis(across: Scale, up: Scale, label: str, x_format: Callable[[float], str], least_step: float = 1.0) -> Markup:
    """Return the line below the values, with ticks at least `least_step` apart, their values and a label."""
    template = Markup(
        '<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:g}" y2="{below:g}"/>'
        '<text class="tick middle" x="{x:.1f}" y="{base:g}">{value}</text>'
    )
    coordinates = {"bottom": up.start, "below": up.start + 4, "base": up.start + 17}
    parts = [
        template.format(x=across(v), value=x_format(v), **coordinates) for v in across.ticks(least_step=least_step)
    ]
    frame = Markup(
        '<path class="axis" d="M{left:g} {bottom:g}H{right:g}"/>'
        '<text class="tick middle" x="{middle:g}" y="{under:g}">{label}</text>'
    )
    middle = (across.start + across.end) / 2
    return Markup("").join(parts) + frame.format(
        left=across.start, bottom=up.start, right=across.end, middle=middle, under=up.start + 34, label=label
    )


def picture(title: str, charts: Sequence[Markup], columns: int = 1) -> str:
    """Return charts in rows of `columns` as a self-contained SVG file, which is light or dark like the screen."""
    heights = [float(match[1]) for chart in charts if (match := re.search(r'height="([\d.]+)"', chart))]
    gap, placed, bottom = 24, [], 12.0
    for first in range(0, len(charts), columns):
        for column, chart in enumerate(charts[first : first + columns]):
            panel = f'<svg class="chart" x="{gap + column * (WIDTH + gap)}" y="{bottom:g}"'
            placed.append(chart.replace(Markup('<svg class="chart"'), Markup(panel), 1))
        bottom += max(heights[first : first + columns]) + 12
    style = (Path(__file__).parent / "static" / "chart.css").read_text(encoding="utf-8")
    document = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img" '
        'font-family="sans-serif">\n'
        "<title>{title}</title>\n<style>\n{style}</style>\n"
        '<rect width="100%" height="100%" style="fill: var(--page)"/>\n{charts}\n</svg>\n'
    )
    width = gap + min(columns, len(charts)) * (WIDTH + gap)
    charts_below = Markup("\n").join(placed)
    return str(document.format(width=width, height=bottom, title=title, style=Markup(style), charts=charts_below))
