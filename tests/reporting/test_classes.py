"""Per-class statistics against scikit-learn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from endtask.reporting.scores import Confusion

answers = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)
@given(answers)
def test_figures_agree_with_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    confusion = Confusion.count([{"label": truth, "predicted": {"0": answer}} for truth, answer in pairs])
    truth, predicted = zip(*pairs, strict=True)
    expected = precision_recall_fscore_support(truth, predicted, labels=list(confusion.labels), zero_division=0)
    found = [(row.precision, row.recall, row.f1, row.support) for row in confusion.scores()]
    assert found == [pytest.approx(row) for row in zip(*expected, strict=True)]


def test_seeds_are_pooled() -> None:
    confusion = Confusion.count([{"label": "a", "predicted": {"0": "a", "1": "b", "2": "b"}}])
    assert (confusion.seeds, confusion.total("a"), confusion.at("a", "b"), confusion.total("b")) == (3, 3, 2, 0)


def test_mistakes_are_listed_by_frequency() -> None:
    rows = [{"label": "a", "predicted": {"0": answer}} for answer in "abbcca"]
    rows.append({"label": "c", "predicted": {"0": "a"}})
    assert Confusion.count(rows).mistakes(2) == [("a", "b", 2), ("a", "c", 2)]


def test_no_predictions_make_an_empty_table() -> None:
    empty = Confusion.count([])
    assert (empty.labels, empty.scores(), empty.mistakes(5)) == ((), [], [])
