"""Influence for regression, multilabel and tagging tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from endtask.io.run_layout import HELPFUL
from endtask.records import Example
from endtask.selectors.influence.scoring_model import (
    EVERY_SCORE,
    class_names,
    class_shares,
    classes_of,
    columns_of,
    draw_targets,
    memberships,
)
from endtask.task import Task
from tests.selectors.influence.small import make_task, run_influence, small_settings

NAMES = ("animals", "food", "space")


def make_kind(kind: str) -> Task:
    """The rows of the small task with answers of another kind."""
    usual = make_task()
    splits = {split: [_of_kind(kind, row, number) for number, row in enumerate(usual.splits[split])]
              for split in ("train", "dev", "test")}  # fmt: skip
    return Task.from_examples("other", splits, task_type=kind)  # type: ignore[arg-type]


def _of_kind(kind: str, row: Example, number: int) -> Example:
    words = tuple(row.text.split())
    label: Any = {
        "regression": float(number % 5),
        "multilabel": tuple(name for place, name in enumerate(NAMES) if (number + 1) >> place & 1),
        "token_classification": tuple("B" if word[0] < "m" else "O" for word in words),
    }[kind]
    return Example(row.id, row.text, label, tokens=words if kind == "token_classification" else None)


@pytest.mark.parametrize("targets", ["folds", "dev"])
@pytest.mark.parametrize("kind", ["regression", "multilabel", "token_classification"])
def test_texts_are_chosen_and_listed(kind: str, targets: str, tmp_path: Path) -> None:
    task = make_kind(kind)
    counts, kept = run_influence(tmp_path, small_settings({"targets": targets}), task=task)
    assert len(kept) == 10
    assert counts["influence"]["columns"] == len(task.train if targets == "folds" else task.dev)
    by_id = {row.id: row for split in ("train", "dev") for row in task.splits[split]}
    for item in kept:
        name, answer = item.reason.split(", most helpful for ")[1].split(")")[0].split(" (")
        row = by_id[name]
        words = {
            "regression": f"score {row.label:g}" if kind == "regression" else "",
            "multilabel": "labels ",
            "token_classification": "tags ",
        }
        assert answer.startswith(words[kind])
    listed = parquet.read_table(tmp_path / "out" / HELPFUL).to_pylist()
    classes = {row["targets"][0] for row in listed if row["kind"] == "class"}
    assert classes == {"regression": {EVERY_SCORE}, "multilabel": set(NAMES), "token_classification": {"B", "O"}}[kind]


def test_the_mean_of_a_label_is_over_the_rows_that_have_it() -> None:
    task = make_kind("multilabel")
    columns = columns_of([task], 1)
    shares = class_shares(columns, class_names(task))
    for place, name in enumerate(class_names(task)):
        having = [name in row.label for row in task.dev]  # type: ignore[operator]
        assert shares[:, place] == pytest.approx(np.asarray(having) / sum(having))
    unknown = [Example("1", "x", ("nobody knows it",)), Example("2", "x", ())]
    assert memberships(unknown, NAMES).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert classes_of(unknown[1]) == ()


def test_rows_without_one_class_are_drawn_as_a_whole() -> None:
    task = make_kind("token_classification")
    assert len(draw_targets(task.train, 6, seed=0)) == 6
