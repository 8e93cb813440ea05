"""Spans of tagged texts (begin-inside-outside tags, or tags of starts and ends), and their F1, precision and recall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np

from endtask.evaluation.metrics.base import Counted, Form, Metric, RowSums, Values, metrics, ratio
from endtask.task.targets import Answers, ragged

Scheme = Literal["bio", "ends", "none"]
Span = tuple[str, int, int]
"""Type, index of the first word, and index after the last word."""

_SAME = {"L": "E", "U": "S"}
_PREFIXES = ("B", "I", "E", "S")
_ENDS = frozenset({"start", "end", "both", "none"})


def scheme_of(tags: Iterable[str]) -> Scheme:
    """Return how tags encode spans: `B-X I-X O` (with `E- S-` or `L- U-` too), start/end/both/none, or not at all.

    >>> scheme_of(["O", "B-place", "I-place"]), scheme_of(["none", "start", "end"]), scheme_of(["NOUN", "VERB"])
    ('bio', 'ends', 'none')
    """
    names = set(tags)
    if {name.lower() for name in names} <= _ENDS and "none" in {name.lower() for name in names}:
        return "ends"
    inside = [name for name in names if name != "O"]
    return "bio" if inside and all(_parts(name)[0] in _PREFIXES for name in inside) else "none"


def spans_of(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """Return the spans of a text in order.

    With `bio` tags a span begins at B and, as in the CoNLL evaluation, at an I that continues nothing.
    With tags of ends it goes from a start to the next end, if no other start is between.

    >>> spans_of(["I-place", "O", "B-time", "I-time"], "bio")
    [('place', 0, 1), ('time', 2, 4)]
    >>> spans_of(["both", "start", "none", "end", "end"], "ends")
    [('', 0, 1), ('', 1, 4)]
    """
    if scheme == "ends":
        return list(_between_ends([tag.lower() for tag in tags]))
    if scheme == "none":
        return []
    return list(_chunks([_parts(tag) for tag in tags]))


def _parts(tag: str) -> tuple[str, str]:
    """Return the prefix of a tag and the type of its span; the prefix is empty if the tag has none."""
    if tag == "O":
        return "O", ""
    prefix, dash, kind = tag.partition("-")
    prefix = _SAME.get(prefix, prefix)
    return (prefix, kind) if prefix in _PREFIXES and (dash or len(tag) == 1) else ("", tag)


def _chunks(parts: Sequence[tuple[str, str]]) -> Iterator[Span]:
    """Yield runs of words of the same type; B and S begin a run, E and S end it."""
    start, before, kind = 0, "O", ""
    for position, (prefix, name) in enumerate([*parts, ("O", "")]):
        goes_on = prefix in ("I", "E") and before in ("B", "I") and name == kind
        if before != "O" and not goes_on:
            yield kind, start, position
        if prefix != "O" and not goes_on:
            start = position
        before, kind = prefix, name


def _between_ends(tags: Sequence[str]) -> Iterator[Span]:
    start = None
    for position, tag in enumerate(tags):
        if tag == "both":
            yield "", position, position + 1
        if tag == "end" and start is not None:
            yield "", start, position + 1
        if tag != "none":
            start = position if tag == "start" else None


class _OfSpans(Metric):
    forms: ClassVar[tuple[Form, ...]] = ("tags",)

    @classmethod
    def fits(cls, form: Form, labels: Sequence[str]) -> bool:
        return form in cls.forms and scheme_of(labels) != "none"

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return RowSums.of(span_counts(predicted, truth, self.labels), self.score)

    @staticmethod
    def score(sums: Values) -> Values:
        """Return the score from the numbers of spans that are right, predicted and true."""
        raise NotImplementedError


@metrics.register("span_f1")
class SpanF1(_OfSpans):
    """F1 of whole spans, as in the CoNLL evaluation."""

    @staticmethod
    def score(sums: Values) -> Values:
        return ratio(2 * sums[:, 0], sums[:, 1] + sums[:, 2])


@metrics.register("span_precision")
class SpanPrecision(_OfSpans):
    """The share of predicted spans that are right."""

    decides = False

    @staticmethod
    def score(sums: Values) -> Values:
        return ratio(sums[:, 0], sums[:, 1])


@metrics.register("span_recall")
class SpanRecall(_OfSpans):
    """The share of true spans that are predicted."""

    decides = False

    @staticmethod
    def score(sums: Values) -> Values:
        return ratio(sums[:, 0], sums[:, 2])


def span_counts(predicted: Answers, truth: Answers, labels: Sequence[str]) -> Values:
    """Return for each run and row the numbers of spans that are right, predicted and true: (runs, rows, 3)."""
    scheme = scheme_of(labels)

    def spans(table: Answers) -> list[set[tuple[str, int, int]]]:
        return [set(spans_of([labels[number] for number in row], scheme)) for row in ragged(table)]

    true = spans(truth)
    rows = [
        [(len(found & right), len(found), len(right)) for found, right in zip(spans(run), true, strict=True)]
        for run in predicted
    ]
    return np.asarray(rows, dtype=np.float64).reshape(len(predicted), len(truth), 3)
