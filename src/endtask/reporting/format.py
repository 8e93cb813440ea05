"""Format numbers and texts for pages and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from endtask.progress import duration as duration

_METRIC_NAMES = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "f1": "F1",
    "accuracy_f1": "mean of accuracy and F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "pearson_spearman": "mean of Pearson and Spearman",
    "r2": "explained variance (R2)",
    "rmse": "root mean squared error",
    "span_f1": "span F1",
    "span_precision": "span precision",
    "span_recall": "span recall",
    "exact_match": "exact match of whole texts",
}
_NOT_IN_POINTS = ("rmse", "perplexity")
_SIZES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_PERCENT_WITHOUT_DECIMALS = 10
_SMALLEST_ROUNDED = 1e6


def count(number: float) -> str:
    """Format a count: exact below ten thousand, then with three digits and a suffix.

    >>> count(1688), count(438_665), count(1_500_000)
    ('1,688', '439 k', '1.5 M')
    """
    return f"{number:,.0f}" if number < 10_000 else _with_suffix(number)


def size(number: float) -> str:
    """Format bytes with decimal suffixes.

    >>> size(812), size(2_234_135), size(44_686_070)
    ('812 B', '2.23 MB', '44.7 MB')
    """
    return f"{number:.0f} B" if number < 1000 else f"{_with_suffix(number)}B"


def energy(joules: float) -> str:
    """Format energy in kWh, or in joules below 0.01 kWh.

    >>> energy(1.8e6), energy(900.0)
    ('0.50 kWh', '900 J')
    """
    return f"{joules / 3.6e6:.2f} kWh" if joules >= 3.6e4 else f"{joules:.0f} J"


def flops(number: float) -> str:
    """Format floating-point operations as a power of ten.

    >>> flops(2_367_609_726_888.0), flops(0)
    ('2.4e12', '0')
    """
    return f"{number:.1e}".replace("e+0", "e").replace("e+", "e") if number else "0"


def share(part: float) -> str:
    """Format a fraction as a percentage with one or two significant digits.

    >>> share(0.374), share(0.0499), share(0.00012), share(0), share(1)
    ('37%', '5.0%', '0.01%', '0%', '100%')
    """
    percent = 100 * part
    if percent == 0 or percent >= _PERCENT_WITHOUT_DECIMALS:
        return f"{percent:.0f}%"
    return f"{percent:.1f}%" if percent >= 1 else f"{percent:.2g}%" if percent >= 0.1 else f"{percent:.1g}%"


def score(value: float) -> str:
    """Format a score between 0 and 1 in points of 100.

    >>> score(0.11269)
    '11.3'
    """
    return f"{100 * value:.1f}"


def score_with_spread(mean: float, spread: float, seeds: int) -> str:
    """Format a mean score with its standard deviation, or alone for a single seed.

    >>> score_with_spread(0.523, 0.0141, 3), score_with_spread(0.523, 0.0, 1)
    ('52.3 ± 1.4', '52.3')
    """
    return f"{score(mean)} ± {score(spread)}" if seeds > 1 else score(mean)


def metric_name(metric: str) -> str:
    """Return the display name of a metric.

    >>> metric_name("macro_f1")
    'macro-F1'
    """
    return _METRIC_NAMES.get(metric, metric)


def metric_with_spread(metric: str, mean: float, spread: float, seeds: int) -> str:
    """Format a score in points of 100, unless its metric has another scale.

    >>> metric_with_spread("accuracy", 0.5, 0.01, 3), metric_with_spread("rmse", 1.5, 0.25, 3)
    ('50.0 ± 1.0', '1.5 ± 0.25')
    """
    if metric not in _NOT_IN_POINTS:
        return score_with_spread(mean, spread, seeds)
    return f"{mean:.3g} ± {spread:.2g}" if seeds > 1 else f"{mean:.3g}"


def plural(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "seed"), plural(1270, "passage")
    ('1 seed', '1,270 passages')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def in_words(values: Mapping[str, Any]) -> str:
    """Format settings and their values on one line.

    >>> in_words({"pretrain.weighting.rho1": 19, "pretrain.learning_rate": 0.00048213})
    'pretrain.weighting.rho1 = 19, pretrain.learning_rate = 0.000482'
    """
    return ", ".join(f"{key} = {short(value)}" for key, value in values.items())


def short(value: Any) -> str:
    """Format a value for a table with three significant digits.

    >>> short(1000.0), short(0.00048213), short("inf")
    ('1000', '0.000482', 'inf')
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < _SMALLEST_ROUNDED else f"{value:.3g}"


def moment(time: str) -> str:
    """Format a time stamp of a manifest, rounded down to the minute.

    >>> moment("2026-01-31T13:44:27+00:00"), moment("yesterday")
    ('2026-01-31 13:44 UTC', 'yesterday')
    """
    try:
        return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return time


def shorten(text: str, characters: int) -> str:
    """Return the beginning of a text on one line, cut at a blank if possible.

    >>> shorten("a small  language model", 12), shorten("short", 12)
    ('a small …', 'short')
    """
    line = " ".join(text.split())
    if len(line) <= characters:
        return line
    head = line[: characters - 1]
    before_blank = head.rsplit(" ", 1)[0]
    return f"{before_blank if len(before_blank) > characters // 2 else head} …"


def _with_suffix(number: float) -> str:
    """Format three significant digits without trailing zeros, and a suffix."""
    for unit, suffix in _SIZES:
        if number >= 0.9995 * unit:
            scaled = number / unit
            decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            shown = f"{scaled:,.{decimals}f}"
            return f"{shown.rstrip('0').rstrip('.') if decimals else shown} {suffix}"
    return f"{number:.0f} "
