"""F1, precision and recall of the spans that tags make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from endtask.evaluation.metrics.base import Counted, Form, Metric, Values, metrics
from endtask.evaluation.metrics.row_sums import RowSums, ratio
from endtask.evaluation.spans import scheme_of, spans_of
from endtask.task.targets import Answers, ragged


class _OfSpans(Metric):
    forms: ClassVar[tuple[Form, ...]] = ("tags",)
    strict: ClassVar[bool] = False
    """Whether a span must begin with B, where the CoNLL evaluation accepts I too."""

    @classmethod
    def fits(cls, form: Form, labels: Sequence[str]) -> bool:
        return form in cls.forms and scheme_of(labels) != "none"

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return RowSums(span_counts(predicted, truth, self.labels, strict=self.strict), self.score)

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


@metrics.register("strict_span_f1")
class StrictSpanF1(SpanF1):
    """F1 of spans that begin with B."""

    strict = True


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


def span_counts(predicted: Answers, truth: Answers, labels: Sequence[str], *, strict: bool = False) -> Values:
    """Return for each run and row the numbers of spans that are right, predicted and true: (runs, rows, 3)."""
    scheme = scheme_of(labels)

    def spans(table: Answers) -> list[set[tuple[str, int, int]]]:
        return [set(spans_of([labels[number] for number in row], scheme, strict=strict)) for row in ragged(table)]

    true = spans(truth)
    rows = [
        [(len(given & right), len(given), len(right)) for given, right in zip(spans(run), true, strict=True)]
        for run in predicted
    ]
    return np.asarray(rows, dtype=np.float64).reshape(len(predicted), len(truth), 3)
