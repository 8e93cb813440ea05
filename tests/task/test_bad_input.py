"""Every kind of invalid task: one line with the file, the row and a hint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtask.config import ColumnSettings, TaskSettings
from endtask.errors import InputError
from endtask.records import Example
from endtask.task import Task

GOOD = [{"text": "good film", "label": "pos"}, {"text": "bad film", "label": "neg"}]


def folder(path: Path, **splits: list[dict[str, Any]]) -> Path:
    for split, rows in {"train": GOOD, "dev": GOOD, "test": GOOD, **splits}.items():
        (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def complaint(source: Path | TaskSettings | str) -> str:
    with pytest.raises(InputError) as caught:
        Task.read(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "x"}, "the label is missing"),
        ({"text": "x", "label": None}, "the label is missing"),
        ({"text": "x", "label": " "}, "the label is missing"),
        ({"text": "x", "label": float("nan")}, "the label is missing"),
        ({"text": "x", "label": ["pos"]}, "the label is of type list, not one class"),
        ({"text": 5, "label": "pos"}, "the text in column 'text' is of type int, not a string"),
        ({"text": None, "label": "pos"}, "the text in column 'text' is missing"),
        ({"label": "pos"}, "the text in column 'text' is missing"),
    ],
)
def test_bad_cells_name_file_and_row(tmp_path: Path, row: dict[str, Any], expected: str) -> None:
    message = complaint(folder(tmp_path, dev=[*GOOD, row]))
    assert message.startswith(f"{tmp_path / 'dev.jsonl'}, row 3: ")
    assert expected in message


def test_all_bad_rows_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    bad = [{"text": "x"}, {"text": 5, "label": "pos"}]
    message = complaint(folder(tmp_path, dev=[*GOOD, *bad, GOOD[0], {"label": "pos"}, *bad, *bad]))
    rows = "6 more rows cannot be read either: 4, 6, 7, ..."
    assert message == f"{tmp_path / 'dev.jsonl'}, row 3: the label is missing; {rows}"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"tokens": ["a", "b"], "tags": ["O"]}], "row 1: 2 tokens but 1 tags"),
        ([{"tokens": ["a"], "tags": ["O"]}, {"tokens": ["a"], "tags": None}], "row 2: the tags are missing"),
        ([{"tokens": ["a", 5], "tags": ["O", "O"]}], "row 1: number 2 of the tokens is 5, not a word"),
        ([{"tokens": ["a", " "], "tags": ["O", "O"]}], "row 1: number 2 of the tokens is ' ', not a word"),
        ([{"tokens": {"a": 1}, "tags": ["O"]}], "row 1: the tokens are of type dict, not a list"),
        ([{"tokens": "['a', 'b']", "tags": "O O"}], "row 1: the tokens \"['a', 'b']\" are not a JSON list"),
        ([{"tokens": ["a"], "tags": ["O"]}], "train has only one tag, 'O': there is nothing to learn"),
    ],
)
def test_bad_tags(tmp_path: Path, rows: list[dict[str, Any]], expected: str) -> None:
    assert expected in complaint(folder(tmp_path, train=rows, dev=rows, test=rows))


def test_score_that_is_no_number(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 0.5}, {"text": "b", "label": "1.0"}]
    bad = [*rows, {"text": "c", "label": "high"}]
    assert "dev.jsonl, row 3: the label 'high' is not a number" in complaint(
        folder(tmp_path, train=rows, dev=bad, test=rows)
    )
    for value in ("inf", "nan", True, "1_0"):
        bad[2]["label"] = value
        settings = TaskSettings(path=str(folder(tmp_path, train=bad)), type="regression")
        assert f"train.jsonl, row 3: the label {value!r} is not a number" in complaint(settings)


def test_unknown_label_names_the_nearest(tmp_path: Path) -> None:
    message = complaint(folder(tmp_path, dev=[GOOD[0], {"text": "x", "label": "poss"}]))
    assert "dev.jsonl, row 2: the label 'poss' does not occur in train; 1 of 2 dev rows" in message
    assert "did you mean 'pos'?" in message
    message = complaint(folder(tmp_path, dev=GOOD, test=[{"text": "x", "label": "12345"}]))
    assert "test.jsonl, row 1" in message
    assert "train has neg, pos" in message


def test_joined_labels_are_told_from_unknown_ones(tmp_path: Path) -> None:
    labels = ("food;sport", "space", "food")
    train = [{"text": f"t {number}", "label": label} for number, label in enumerate(labels)]
    message = complaint(folder(tmp_path, train=train, dev=[{"text": "x", "label": "space;food"}]))
    assert "--set 'task.label_delimiter=;'" in message


def test_splits_that_share_no_class(tmp_path: Path) -> None:
    train = [{"text": f"t {n}", "label": f"class {n}"} for n in range(20)]
    other = [{"text": f"t {n}", "label": f"class {n}x"} for n in range(20)]
    assert "the splits share no class" in complaint(folder(tmp_path, train=train, dev=other))
    assert "20 of 20 dev rows" in complaint(tmp_path)


def test_one_class_only(tmp_path: Path) -> None:
    message = complaint(folder(tmp_path, train=[GOOD[0], GOOD[0]]))
    assert "train.jsonl: train has only one class, 'pos': there is nothing to learn" in message
    same = [{"text": "a", "label": 0.5}, {"text": "b", "label": 0.5}]
    assert "only one score, 0.5" in complaint(folder(tmp_path, train=same, dev=same, test=same))


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_empty_splits(tmp_path: Path, split: str) -> None:
    assert f"{split}.jsonl: the {split} split has no rows" in complaint(folder(tmp_path, **{split: []}))
    blank = [{"text": "", "label": "pos"}]
    assert f"the {split} split has no rows with text" in complaint(folder(tmp_path, **{split: blank}))


def test_ids_twice_or_missing(tmp_path: Path) -> None:
    rows = [{**row, "id": 7} for row in GOOD]
    assert "train.jsonl, row 2: row 1 has the id '7' already" in complaint(folder(tmp_path, train=rows))
    rows = [{**row, "id": None} for row in GOOD]
    assert "train.jsonl, row 1: column 'id' holds None" in complaint(folder(tmp_path, train=rows))


@pytest.mark.parametrize(
    ("row", "columns", "expected"),
    [
        ({"txt": "a", "label": "x"}, {}, "did you mean task.columns.text=txt?"),
        (
            {"text": "a", "lable": "x"},
            {},
            "the columns are 'text', 'lable' (did you mean task.columns.label=lable?)",
        ),
        ({"text": "a", "zzz": "x"}, {}, "(name it with task.columns.label=...)"),
        ({"text": "a", "label": "x"}, {"text": "texd"}, "no column 'texd' for task.columns.text"),
        ({"text": "a", "label": "x"}, {"text": "texd"}, "did you mean task.columns.text=text?"),
        ({"text": "a", "label": "x"}, {"group": "doc"}, "no column 'doc' for task.columns.group"),
    ],
)
def test_missing_columns(tmp_path: Path, row: dict[str, str], columns: dict[str, str], expected: str) -> None:
    settings = TaskSettings(path=str(folder(tmp_path, train=[row])), columns=ColumnSettings(**columns))
    message = complaint(settings)
    assert message.startswith(str(tmp_path / "train.jsonl"))
    assert expected in message


@pytest.mark.parametrize(("kind", "role"), [("pair", "text_pair"), ("token_classification", "tokens")])
def test_kind_asked_for_must_fit_the_columns(tmp_path: Path, kind: Any, role: str) -> None:
    message = complaint(TaskSettings(path=str(folder(tmp_path)), type=kind))
    assert f"no column for the {role} of a task of type {kind!r}" in message


def test_scores_with_and_without_second_text(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 0.5}, {"text": "b", "label": 1}]
    paired = [{**row, "text_pair": "c"} for row in rows]
    message = complaint(folder(tmp_path, train=paired, dev=rows, test=paired))
    assert "dev.jsonl: dev and train differ" in message


def test_folder_without_train_or_with_two(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "valid.csv").write_text("text,label\na,pos\n")
    assert "two files for the dev split: dev.jsonl and valid.csv" in complaint(tmp_path)
    (tmp_path / "valid.csv").unlink()
    (tmp_path / "train.jsonl").rename(tmp_path / "train.txt")
    message = complaint(tmp_path)
    assert "no train file in this folder, only dev.jsonl, test.jsonl, train.txt" in message
    assert ".jsonl" in message.split("(")[-1]


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    folder(tmp_path)
    assert f"did you mean '{tmp_path / 'train.jsonl'}'?" in complaint(tmp_path / "trian.jsonl")
    assert "no such file or folder" in complaint(tmp_path / "no" / "where")
    assert "no task given" in complaint("")
    (tmp_path / "task.doc").write_text("x")
    assert "unknown kind of file" in complaint(tmp_path / "task.doc")


def test_broken_rows_keep_their_place(tmp_path: Path) -> None:
    with (folder(tmp_path) / "test.jsonl").open("a") as file:
        file.write("{not json\n")
    assert "test.jsonl, row 3: not valid JSON" in complaint(tmp_path)


def test_too_little_to_carve_from(tmp_path: Path) -> None:
    path = folder(tmp_path) / "train.jsonl"
    assert "too few rows to carve a test split from" in complaint(path)
    assert "too few rows to carve a dev split from" in complaint(TaskSettings(path=str(path), test_fraction=0))
    assert "a dev split is needed" in complaint(TaskSettings(path=str(path), test_fraction=0, dev_fraction=0))
    assert "leave nothing" in complaint(TaskSettings(path=str(path), test_fraction=0.5, dev_fraction=0.5))


@pytest.mark.parametrize(
    ("splits", "kind", "expected"),
    [
        ({"train": [], "validation": []}, "text", "unknown split 'validation'"),
        ({"dev": []}, "text", "a task needs a train split"),
        ({"train": []}, "text", "the train split has no rows"),
        ({"train": [Example("7", "a", None)]}, "text", "example '7': the label is missing"),
        ({"train": [Example("7", "a", "x")]}, "pair", "example '7': the second text is missing"),
        ({"train": [Example("7", "a", ("O",))]}, "token_classification", "example '7': the tokens are missing"),
        ({"train": [Example("7", "a", "x")]}, "regression", "example '7': the label 'x' is not a number"),
    ],
)
def test_examples_made_in_python_are_checked(splits: Any, kind: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        Task.from_examples("made", splits, task_type=kind)
