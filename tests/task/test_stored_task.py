"""A task is read as it was stored, for every task type."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.records import Example
from endtask.task import Task
from endtask.task.task import read_task, task_files

TEXTS = st.text(st.characters(), min_size=1, max_size=12).filter(str.strip)


def write(task: Task, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in task_files(task).items():
        (folder / name).write_bytes(content)
    return folder


def examples(texts: list[str], **fields: Any) -> list[Example]:
    return [
        Example(f"train-{number}", text, ("yes", "no")[number % 2], path="train.csv", row=number, **fields)
        for number, text in enumerate(texts)
    ]


@given(
    texts=st.lists(TEXTS, min_size=12, max_size=20, unique=True),
    pair=st.none() | TEXTS,
    group=st.none() | TEXTS,
    has_test=st.booleans(),
    notes=st.lists(TEXTS, max_size=2),
)
def test_texts_and_pairs(
    texts: list[str], pair: str | None, group: str | None, has_test: bool, notes: list[str]
) -> None:
    """Line ends of all kinds and lone surrogates too."""
    rows = examples(texts, text_pair=pair, group=group)
    splits = {"train": rows[:-6], "dev": rows[-6:-3], **({"test": rows[-3:]} if has_test else {})}
    kind = "pair" if pair is not None else "text"
    task = Task.from_examples("some task", splits, task_type=kind, test_fraction=0, notes=notes)  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        assert read_task(write(task, Path(folder))) == task


def test_carved_splits_scores_tags_and_dropped_rows(tmp_path: Path) -> None:
    rows = examples([f"text {number}" for number in range(40)])
    rows[3] = Example("train-3", "  ", "yes")
    carved = Task.from_examples("carved", {"train": rows})
    assert carved.dropped == {"train": 1}
    scores = Task.from_examples(
        "scores", {"train": [Example(str(n), f"text {n}", n / 7) for n in range(30)]}, task_type="regression"
    )
    tags = Task.from_examples(
        "tags",
        {"train": [Example(str(n), f"a {n}", ("O", "B"), tokens=("a", str(n))) for n in range(30)]},
        task_type="token_classification",
    )
    for task in (carved, scores, tags):
        assert read_task(write(task, tmp_path / task.name)) == task


def test_a_copy_that_was_changed(tmp_path: Path) -> None:
    task = Task.from_examples("a task", {"train": examples([f"text {number}" for number in range(40)])})
    folder = write(task, tmp_path / "copy")
    rows = (folder / "dev.jsonl").read_text()
    for damaged in (rows.replace("text", "test", 1), rows[:-5], "[]\n", '{"id": "a"}\n', ""):
        (folder / "dev.jsonl").write_text(damaged)
        with pytest.raises(InputError, match="the copy of the task is damaged"):
            read_task(folder)
    (folder / "dev.jsonl").write_text("[" * 100_000)
    with pytest.raises(InputError, match="the copy of the task is damaged"):
        read_task(folder)
    (folder / "dev.jsonl").unlink()
    with pytest.raises(InputError, match="the copy of the task is damaged"):
        read_task(folder)
    (folder / "task.json").write_text(json.dumps({"name": "a task"}))
    with pytest.raises(InputError, match="the copy of the task is damaged"):
        read_task(folder)


def test_splits_are_no_paths(tmp_path: Path) -> None:
    """A copy may come from anyone; rows of files elsewhere must not be read into it."""
    task = Task.from_examples("a task", {"train": examples([f"text {number}" for number in range(40)])})
    folder = write(task, tmp_path / "copy")
    facts = json.loads((folder / "task.json").read_text())
    for splits in (["train", "../elsewhere"], ["train", str(tmp_path / "elsewhere")], "train", [["train"]], 3):
        (folder / "task.json").write_text(json.dumps({**facts, "splits": splits}))
        with pytest.raises(InputError, match=r"damaged: (names other splits|.*(unhashable|iterable))"):
            read_task(folder)
