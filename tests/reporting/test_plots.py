"""Charts: values are at the right pixels, and unusual input gives a valid picture."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.reporting.plots import BarGroup, DotRow, Series, bar_chart, dot_chart, line_chart
from endtask.reporting.svg import WIDTH, Scale, log_ticks, picture, round_ticks


def chart(*series: Series) -> ElementTree.Element:
    """A line chart, parsed: it has to be well formed."""
    return ElementTree.fromstring(line_chart(series, title="Loss", x_label="step", y_label="loss"))


def points(svg: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """The pixels of every line."""
    lines = []
    for line in svg.iter("polyline"):
        pairs = (pair.split(",") for pair in line.attrib["points"].split())
        lines.append([(float(x), float(y)) for x, y in pairs])
    return lines


def test_values_stand_at_their_pixels() -> None:
    (line,) = points(chart(Series("a", ((0, 0), (5, 10), (10, 5)))))
    left, middle, right = line
    assert (left[0], right[0]) == (52, WIDTH - 18)
    assert middle[0] == (left[0] + right[0]) / 2
    # Up is less: 10 stands highest, and 5 half way between 0 and 10.
    assert middle[1] < right[1] < left[1]
    assert right[1] == pytest.approx((left[1] + middle[1]) / 2, abs=0.1)


def test_ticks_stand_where_their_values_are_drawn() -> None:
    svg = chart(Series("a", ((0, 0.0), (10, 10.0))))
    (line,) = points(svg)
    ticks = {text.text: float(text.attrib["y"]) - 4 for text in svg.iter("text") if text.attrib["class"] == "tick end"}
    assert ticks["0"] == pytest.approx(line[0][1], abs=0.11)
    assert ticks["10"] == pytest.approx(line[1][1], abs=0.11)


def test_several_series_have_a_legend_and_styles_of_their_own() -> None:
    svg = chart(Series("first", ((0, 1), (1, 2))), Series("second", ((0, 2), (1, 1))))
    texts = [text.text for text in svg.iter("text")]
    assert "first" in texts
    assert "second" in texts
    assert [line.attrib["class"] for line in svg.iter("polyline")] == ["line series-0", "line series-1"]


def test_one_point_is_a_dot_inside_the_chart() -> None:
    svg = chart(Series("a", ((3, 0.5),)))
    (dot,) = svg.iter("circle")
    height = float(svg.attrib["viewBox"].split()[3])
    assert 0 < float(dot.attrib["cx"]) < WIDTH
    assert 0 < float(dot.attrib["cy"]) < height


@pytest.mark.parametrize("series", [(), (Series("a", ()),), (Series("a", ((1, math.nan), (math.inf, 2))),)])
def test_nothing_to_draw_is_said(series: tuple[Series, ...]) -> None:
    svg = chart(*series)
    assert "no values" in [text.text for text in svg.iter("text")]
    assert not list(svg.iter("polyline"))


def test_an_empty_series_keeps_its_place_among_the_styles() -> None:
    svg = chart(Series("empty", ()), Series("full", ((0, 1), (1, 2))))
    assert [line.attrib["class"] for line in svg.iter("polyline")] == ["line series-1"]


def test_charts_can_be_read_without_being_seen() -> None:
    svg = chart(Series("seed 0", ((1, 2.0), (2, 1.5))))
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"] == "Loss: seed 0 from 2 to 1.5"
    assert svg.findtext("title") == "Loss"


def test_names_are_escaped() -> None:
    name = '<script>alert("x")</script>'
    drawn = line_chart([Series(name, ((0, 1),)), Series("b", ())], title=name, x_label=name, y_label=name)
    drawn += bar_chart([BarGroup(name, (1.0,), (name,))], [name], title=name)
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_bars_are_as_long_as_their_values() -> None:
    groups = [BarGroup("a", (0.5, 1.0), ("50%", "100%")), BarGroup("b", (0.0, 0.25), ("0%", "25%"))]
    svg = ElementTree.fromstring(bar_chart(groups, ["corpus", "kept"], title="Share"))
    bars = [float(bar.attrib["width"]) for bar in svg.iter("rect")][2:]  # the first two are the legend's
    assert bars == [210.0, 420.0, 0.0, 105.0]
    assert "100%" in [text.text for text in svg.iter("text")]


@pytest.mark.parametrize("groups", [[], [BarGroup("a", (0.0,), ("0%",))]])
def test_bars_of_nothing_have_no_length(groups: list[BarGroup]) -> None:
    svg = ElementTree.fromstring(bar_chart(groups, ["kept"], title="Share"))
    assert sum(float(bar.attrib["width"]) for bar in svg.iter("rect")) == 0


finite = st.floats(min_value=-1e12, max_value=1e12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(finite, st.floats()), max_size=40))
def test_any_values_give_finite_pixels(values: list[tuple[float, float]]) -> None:
    svg = line_chart([Series("a", tuple(values))], title="t", x_label="x", y_label="y")
    ElementTree.fromstring(svg)
    numbers = re.findall(r'(?:x|y|x1|x2|y1|y2|cx|cy|points|d)="([^"]*)"', svg)
    assert not [text for text in numbers if "nan" in text or "inf" in text]


@settings(max_examples=50, deadline=None)
@given(finite, finite)
def test_ticks_are_few_round_and_inside(first: float, second: float) -> None:
    low, high = min(first, second), max(first, second)
    ticks = round_ticks(low, high)
    slack = 1e-6 * (high - low) + 1e-9 * abs(high)
    assert 1 <= len(ticks) <= 6
    assert all(low - slack <= tick <= high + slack for tick in ticks)


@settings(max_examples=50, deadline=None)
@given(finite, finite, finite)
def test_a_scale_keeps_the_order(low: float, high: float, value: float) -> None:
    low, high = min(low, high), max(low, high)
    inside = min(max(value, low), high)
    assert 100 <= Scale(low, high, 100, 200)(inside) <= 200


def test_intervals_are_whiskers_and_the_value_stands_behind_them() -> None:
    groups = [
        BarGroup("sure", (0.8,), ("80.0",), ((0.7, 0.9),)),
        BarGroup("single", (0.4,), ("40.0",), (None,)),
        BarGroup("plain", (0.2,), ("20.0",)),
    ]
    picture = str(bar_chart(groups, ["mean"], title="scores"))
    assert picture.count('class="whisker"') == 1
    whisker = re.search(r'class="whisker" d="M([\d.]+) .*?M([\d.]+) .*?H([\d.]+)"', picture)
    assert whisker is not None
    low, high, end = map(float, whisker.groups())
    assert 0 < low < high == end
    assert low / high == pytest.approx(7 / 9, abs=0.01)
    value = re.search(r'x="([\d.]+)" y="[\d.]+">80.0<', picture)
    assert value is not None
    assert float(value[1]) > high


def test_logarithmic_axes_turn_powers_into_straight_lines() -> None:
    series = [Series("a", ((1, 10.0), (10, 100.0), (100, 1000.0)))]
    drawn = line_chart(series, title="Cost", x_label="size", y_label="seconds", log=True)
    ((first, second, third),) = points(ElementTree.fromstring(drawn))
    assert second == pytest.approx(((first[0] + third[0]) / 2, (first[1] + third[1]) / 2), abs=0.1)
    assert first[0] < third[0]
    assert first[1] > third[1]


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-6, 1e9), st.floats(1.01, 1e6))
def test_logarithmic_ticks_are_few_and_inside(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 1 <= len(ticks) <= 13
    assert all(low * (1 - 1e-6) <= tick <= low * factor * (1 + 1e-6) for tick in ticks)


def test_dots_stand_left_and_right_of_zero() -> None:
    rows = [DotRow("heading"), DotRow("a", ((0, -2.0, True), (1, 1.0, False)))]
    svg = ElementTree.fromstring(dot_chart(rows, ["mt", "meta"], title="Leads", x_label="points"))
    *legend, low, high = svg.iter("circle")
    (zero,) = [path for path in svg.iter("path") if "V" in path.attrib["d"]]
    middle = float(zero.attrib["d"][1:].split()[0])
    assert len(legend) == 2
    assert (low.attrib["class"], high.attrib["class"]) == ("dot series-0", "hollow series-1")
    assert middle - float(low.attrib["cx"]) == pytest.approx(2 * (float(high.attrib["cx"]) - middle), abs=0.2)
    assert svg.attrib["aria-label"] == "Leads: a: mt -2.0, meta +1.0"


def test_a_picture_is_a_file_of_its_own() -> None:
    charts = [bar_chart([BarGroup("a", (1.0,), ("1",))], ["x"], title=title) for title in ("one", "two", "three")]
    drawn = picture("<All>", charts, columns=2)
    svg = ElementTree.fromstring(drawn)
    inside = list(svg.iter("{http://www.w3.org/2000/svg}svg"))[1:]
    assert [(chart.attrib["x"] > inside[0].attrib["x"]) for chart in inside] == [False, True, False]
    assert inside[0].attrib["y"] == inside[1].attrib["y"] != inside[2].attrib["y"]
    assert "prefers-color-scheme: dark" in drawn
    assert drawn == picture("<All>", charts, columns=2)
