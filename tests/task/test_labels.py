"""Multilabel rows, several test sets, and the arrays of true answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import TaskSettings
from endtask.errors import InputError
from endtask.records import Example
from endtask.registry import task_types
from endtask.task import Task, audit, leaked_ids
from endtask.task.targets import as_lists, from_lists, numbered, score_scale, targets
from endtask.task.task import read_task, task_files

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
    assert (task.type, task.labels) == ("multilabel", ("a", "b", "c"))
    assert [example.label for example in task.train] == [("a", "b"), (), ("c",), ("a",)]
    assert targets(task, "dev").tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert audit(task).splits["train"].labels == {"a": 2, "b": 1, "c": 1}


def test_cells_with_a_delimiter_and_lists_in_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,label\none,a; b\ntwo,\nthree,"[""c"", 7]"\n', encoding="utf-8")
    settings = TaskSettings(path=str(path), type="multilabel", label_delimiter=";", dev_fraction=0.3, test_fraction=0)
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
        ([[], []], "train has no label at all: there is nothing to learn"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: list[Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Task.read(TaskSettings(path=str(folder(tmp_path, labels)), type="multilabel"))
    assert words in str(caught.value)


def csv(path: Path, labels: list[str]) -> Path:
    path.write_text(
        "text\tlabels\n" + "".join(f"text {n}\t{cell}\n" for n, cell in enumerate(labels)), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize(
    ("cells", "delimiter"),
    [(["a;b", "c", "", "a", "b;c"] * 4, ";"), (['["a", "b"]', '["c"]', "[]", '["a"]', '["b", "c"]'] * 4, None)],
)
def test_the_kind_is_told_by_a_delimiter_or_lists_in_cells(
    tmp_path: Path, cells: list[str], delimiter: str | None
) -> None:
    task = Task.read(TaskSettings(path=str(csv(tmp_path / "rows.tsv", cells)), label_delimiter=delimiter))
    assert (task.type, task.labels) == ("multilabel", ("a", "b", "c"))


def test_names_in_brackets_are_classes(tmp_path: Path) -> None:
    assert Task.read(csv(tmp_path / "rows.tsv", ["[good]", "[bad]"] * 10)).type == "text"


@pytest.mark.parametrize(
    ("cells", "more", "words"),
    [
        (["a|b", "c"] * 9, {"label_delimiter": ";"}, "no row of column 'labels' holds ';' (did you mean '|'?)"),
        (["a", "c"] * 9, {"label_delimiter": ";"}, "(type 'text' is for one label in each row)"),
        (["a;b", "c"] * 9, {"label_delimiter": ";", "type": "text"}, "key 'task.label_delimiter': has no meaning"),
        (["['a', 'b']", "['c']"] * 9, {}, "row 2: the labels \"['a', 'b']\" are not a JSON list"),
        (["[a, b]", "[c]"] * 9, {"type": "multilabel"}, "row 2: the labels '[a, b]' are not a JSON list"),
        (["a;b", "c"] * 9, {"type": "multilabel"}, "row 2: the labels are one string, 'a;b'"),
    ],
)
def test_cells_that_cannot_be_parted(tmp_path: Path, cells: list[str], more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Task.read(TaskSettings(path=str(csv(tmp_path / "rows.tsv", cells)), **more))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1.5, 2.5, "high", 3.0, 1.0], "row 3: the label 'high' is not a number, as 4 others are"),
        (["a", "b", ["a"], "b"], "row 3: the label is of type list, not one class"),
        ([["a"], ["b"], "a", []], "row 3: the labels are one string, 'a'"),
    ],
)
def test_one_odd_row_is_named_and_decides_nothing(tmp_path: Path, labels: list[Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Task.read(folder(tmp_path, labels))
    assert words in str(caught.value)


def test_a_few_numbers_among_words_are_classes(tmp_path: Path) -> None:
    assert Task.read(folder(tmp_path, ["v2.5", "none", 1.5, "v2.5"])).type == "text"


def test_labels_that_only_test_has_count_as_missed(tmp_path: Path) -> None:
    folder(tmp_path, SETS)
    write(tmp_path / "test.jsonl", [{"text": "new", "labels": ["z", "a"]}])
    task = Task.read(tmp_path)
    assert (task.labels, task.all_labels) == (("a", "b", "c"), ("a", "b", "c", "z"))
    assert targets(task, "test").tolist() == [[1, 0, 0, 1]]
    assert any("labels of test that never occur in train: 1 (z);" in str(problem) for problem in audit(task).problems)


def test_test_sets_are_one_split_whose_rows_know_their_set(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "ab"[n % 2], "id": n} for n in range(4)]
    for name in ("train", "dev", "test-matched", "test_mismatched"):
        write(tmp_path / f"{name}.jsonl", [{**row, "text": f"{name} {row['text']}"} for row in rows])
    task = Task.read(tmp_path)
    assert list(task.splits) == ["train", "dev", "test"]
    assert [example.part for example in task.test] == ["matched"] * 4 + ["mismatched"] * 4
    assert len({example.id for example in task.test}) == 8, "the same ids may stand in both sets"
    assert leaked_ids(task) == frozenset()
    assert "2 test sets, scored apart and together: matched 4, mismatched 4 rows" in task.notes
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
    "regression": st.lists(st.floats(-9, 9), min_size=1),
    "multilabel": st.lists(st.lists(st.sampled_from("abc"), unique=True).map(sorted), min_size=1),
    "token_classification": st.lists(st.lists(st.sampled_from("abc"), min_size=1), min_size=1),
}


@pytest.mark.parametrize("kind", answers)
@given(data=st.data())
@settings(max_examples=40)
def test_answers_go_to_arrays_and_back(kind: Any, data: st.DataObject) -> None:
    rows = data.draw(answers[kind])
    array = numbered(rows, kind, ("a", "b", "c"))
    assert len(array) == len(rows)
    assert task_types.get(kind)().to_names(array, ("a", "b", "c")) == rows
    again = from_lists(json.loads(json.dumps(as_lists(array, kind))), kind)
    assert np.array_equal(again, array)


def test_the_scale_of_scores() -> None:
    rows = [Example(str(n), f"text {n}", float(n % 2)) for n in range(40)]
    task = Task.from_examples("any", {"train": rows, "dev": rows[:2]}, task_type="regression", test_fraction=0)
    assert score_scale(task) == (0.5, 0.5)
