"""Several labels for a text, several test sets, and the arrays of right answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.records import Example
from endtask.settings import TaskSettings
from endtask.task import Task, audit, leaked_ids
from endtask.task.stored import read_task, task_files
from endtask.task.targets import as_lists, from_lists, named, numbered, score_scale, targets

SETS: list[Any] = [["b", "a"], [], ["c"], ["a", "a"]]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def folder(path: Path, labels: list[Any], column: str = "labels") -> Path:
    for split in ("train", "dev", "test"):
        write(path / f"{split}.jsonl", [{"text": f"{split} {n}", column: each} for n, each in enumerate(labels)])
    return path


def test_lists_are_label_sets(tmp_path: Path) -> None:
    task = Task.read(folder(tmp_path, SETS))
    assert (task.kind, task.labels) == ("labels", ("a", "b", "c"))
    assert [example.label for example in task.train] == [("a", "b"), (), ("c",), ("a",)]
    assert targets(task, "dev").tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert audit(task).splits["train"].labels == {"a": 2, "b": 1, "c": 1}


def test_cells_with_a_delimiter_and_lists_in_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,label\none,a; b\ntwo,\nthree,"[""c"", 7]"\n', encoding="utf-8")
    settings = TaskSettings(path=str(path), kind="labels", label_delimiter=";", dev_fraction=0.3, test_fraction=0)
    found = {example.text: example.label for split in Task.read(settings).splits.values() for example in split}
    assert found == {"one": ("a", "b"), "two": (), "three": ("7", "c")}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", ["b"]], "train.jsonl, row 1: the labels are one string, 'a'"),
        ([["a"], None], "train.jsonl, row 2: the labels are missing"),
        ([["a"], 5], "train.jsonl, row 2: the labels are of type int, not a list"),
        ([["a", ""]], "train.jsonl, row 1: number 2 of the labels is '', not a name"),
        ([["a"], ["a"]], "train has only one label, 'a': there is nothing to learn"),
        ([[], []], "train has only one label, None: there is nothing to learn"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: list[Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Task.read(TaskSettings(path=str(folder(tmp_path, labels)), kind="labels"))
    assert words in str(caught.value)


def test_labels_that_only_test_has_count_as_missed(tmp_path: Path) -> None:
    folder(tmp_path, SETS)
    write(tmp_path / "test.jsonl", [{"text": "new", "labels": ["z", "a"]}])
    task = Task.read(tmp_path)
    assert (task.labels, task.all_labels) == (("a", "b", "c"), ("a", "b", "c", "z"))
    assert targets(task, "test").tolist() == [[1, 0, 0, 1]]
    assert any("1 labels of test never occur in train (z)" in str(problem) for problem in audit(task).problems)


def test_test_sets_are_one_split_whose_rows_know_their_set(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "ab"[n % 2], "id": n} for n in range(4)]
    for name in ("train", "dev", "test-matched", "test_mismatched"):
        write(tmp_path / f"{name}.jsonl", [{**row, "text": f"{name} {row['text']}"} for row in rows])
    task = Task.read(tmp_path)
    assert list(task.splits) == ["train", "dev", "test"]
    assert [example.part for example in task.test] == ["matched"] * 4 + ["mismatched"] * 4
    assert len({example.id for example in task.test}) == 8, "the same ids may stand in both sets"
    assert leaked_ids(task) == frozenset()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in task_files(task).items():
        (copy / name).write_bytes(content)
    assert read_task(copy) == task


def test_a_single_named_test_set_is_the_test_split(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(4)]
    for name in ("train", "dev", "test_new"):
        write(tmp_path / f"{name}.jsonl", rows)
    task = Task.read(tmp_path)
    assert [example.part for example in task.test] == [None] * 4


answers = {
    "text": st.lists(st.sampled_from("abc"), min_size=1),
    "score": st.lists(st.floats(-9, 9), min_size=1),
    "labels": st.lists(st.lists(st.sampled_from("abc"), unique=True).map(sorted), min_size=1),
    "tags": st.lists(st.lists(st.sampled_from("abc"), min_size=1), min_size=1),
}


@pytest.mark.parametrize("kind", answers)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_answers_go_to_arrays_and_back(kind: Any, data: st.DataObject) -> None:
    rows = data.draw(answers[kind])
    array = numbered(rows, kind, ("a", "b", "c"))
    assert len(array) == len(rows)
    assert named(array, kind, ("a", "b", "c")) == rows
    again = from_lists(json.loads(json.dumps(as_lists(array, kind))), kind)
    assert np.array_equal(again, array)


def test_the_scale_of_scores() -> None:
    rows = [Example(str(n), f"text {n}", float(n % 2)) for n in range(40)]
    task = Task.from_examples("any", {"train": rows, "dev": rows[:2]}, kind="score", test_fraction=0)
    assert score_scale(task) == (0.5, 0.5)
