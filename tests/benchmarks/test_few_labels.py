"""Draws of few labels, and the page made of made-up rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.few_labels.draws import drawn_rows, scored_rows, with_names
from benchmarks.few_labels.page import few_labels_table, summarize
from benchmarks.results_file import Machine, Results
from endtask.records import Example
from endtask.task import Task

CLASSES = ("few", "many", "some")


def make_task() -> Task:
    """A class of 2 rows among 40, a text that two rows share and one that test has too."""
    labels = ["few"] * 2 + ["some"] * 18 + ["many"] * 20
    texts = [f"text {number}" for number in range(40)]
    texts[5], texts[30] = texts[4], "scored 0"
    train = [Example(str(number), text, label) for number, (text, label) in enumerate(zip(texts, labels, strict=True))]
    test = [Example(f"t{number}", f"scored {number}", CLASSES[number % 3]) for number in range(12)]
    return Task.from_examples("toy", {"train": train, "dev": test[:6], "test": test[6:]})


TASK = make_task()


@given(st.integers(1, 45), st.integers(0, 20))
def test_a_draw_is_as_even_as_can_be_and_part_of_a_larger_one(labels: int, draw: int) -> None:
    rows = drawn_rows(TASK, labels, draw)
    texts = [row.text for row in rows]
    assert len(set(texts)) == len(rows) == min(labels, 38)
    assert not {row.text for row in (*TASK.dev, *TASK.test)} & set(texts)
    assert drawn_rows(TASK, labels + 1, draw)[: len(rows)] == rows
    counts = Counter(str(row.label) for row in rows)
    left = {label: sum(str(row.label) == label for row in drawn_rows(TASK, 99, draw)) for label in CLASSES}
    most = max(counts.values())
    assert all(counts[label] >= min(most - 1, left[label]) for label in CLASSES)


def test_scored_rows_are_the_same_for_every_draw() -> None:
    chosen = scored_rows(TASK, "test", 4)
    assert chosen == scored_rows(TASK, "test", 4)
    assert len({row.id for row in chosen}) == 4
    assert len(scored_rows(TASK, "test", 99)) == 6


def test_every_class_is_named_once_in_words() -> None:
    rows = with_names(TASK.train[:3], TASK, "toy")
    assert [(row.text, row.label) for row in rows[3:]] == [(label, label) for label in CLASSES]
    rows = [Example(str(number), f"text {number}", str(number % 2)) for number in range(4)]
    two = Task.from_examples("sst2", {"train": rows[:2], "dev": rows[2:]}, test_fraction=0.0)
    assert [row.text for row in with_names(two.train, two, "sst2")[-2:]] == ["negative", "positive"]


def row(method: str, right: str, *, draw: int = 0, split: str = "test") -> dict[str, Any]:
    accuracy = right.count("1") / len(right)
    case = {"split": split, "task": "sst2", "labels": 8, "draw": draw, "method": method}
    return {**case, "accuracy": accuracy, "seconds": 2.0, "right": right}


def test_the_lead_is_over_draws_that_both_have() -> None:
    rows = [row("few_labels", "1111" * 20), row("setfit", "1100" * 20), row("few_labels", "0000" * 20, draw=1)]
    summary = summarize(rows)
    assert summary["lead_over_setfit_points"] == pytest.approx(50.0)
    assert (summary["compared_with_setfit"], summary["better_than_setfit"], summary["worse_than_setfit"]) == (1, 1, 0)
    assert summarize(rows[:1]) == {"rows": 1}


def test_the_page_shows_what_was_measured_and_nothing_else() -> None:
    rows = [
        row("few_labels", "1110"),
        row("few_labels", "1010", draw=1),
        row("setfit", "1111"),
        row("frozen", "0000", split="dev"),
    ]
    machine = Machine(cpu="toy", cores=1, memory_gb=1.0, gpu=None)
    results = Results(
        command="c", machine=machine, versions={"python": "3"}, date="2026-01-01", rows=rows, summary=summarize(rows)
    )
    page = few_labels_table(results)
    assert "| `few-labels` | 62.5 (2) |" in page
    assert "| sst2 | 8 | -25.0 [" in page
    assert (
        page.index("## Test")
        < page.index("## Dev")
        < page.index("| logistic regression on its frozen vectors | 0.0 (1) |")
    )
    assert "trec_qc" not in page
