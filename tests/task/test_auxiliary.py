"""Auxiliary tasks: reading, storing, and the check for leaks between tasks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import resolve
from endtask.errors import InputError
from endtask.records import Example
from endtask.retrieval.retrieve import evaluation_texts
from endtask.task import Task, leaked_ids
from endtask.task.leaks import leaks_between, sibling_tasks
from endtask.task.task import read_all, read_task, task_files
from tests.toy_run import write_rows, write_toy
from tests.toy_task_types import write_toy_of_type


def settings_of(folder: Path, **tasks: Path) -> dict[str, object]:
    told = {name: {"path": str(path)} for name, path in tasks.items()}
    return {"task": {"path": str(folder / "task")}, "tasks": told, "pretrain": {"weighting": "equal"}}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("both")
    write_toy(folder / "toy")
    write_toy_of_type(folder / "tags", "token_classification")
    return read_all(resolve(settings_of(folder / "toy", ner=folder / "tags" / "task")))


def test_they_are_read_under_their_names(both: Task) -> None:
    assert [(name, one.name, one.type) for name, one in both.auxiliary.items()] == [
        ("ner", "ner", "token_classification")
    ]
    assert len(both.auxiliary["ner"].train) == 48


def test_they_are_part_of_the_combined_fingerprint(both: Task) -> None:
    alone = replace(both, auxiliary={})
    assert alone.combined_fingerprint == both.fingerprint
    other = replace(both, auxiliary={"tagger": both.auxiliary["ner"]})
    assert len({alone.combined_fingerprint, both.combined_fingerprint, other.combined_fingerprint}) == 3


def test_a_copy_holds_all_of_them(both: Task, tmp_path: Path) -> None:
    for name, content in task_files(both).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert read_task(tmp_path) == both


def test_a_copy_whose_names_lead_elsewhere_is_refused(both: Task, tmp_path: Path) -> None:
    for name, content in task_files(replace(both, auxiliary={})).items():
        (tmp_path / name).write_bytes(content)
    facts = tmp_path / "task.json"
    facts.write_text(facts.read_text().replace('"name"', '"auxiliary": ["../../x"],\n"name"', 1))
    with pytest.raises(InputError, match=r"the copy of the task is damaged: .*is no name"):
        read_task(tmp_path)


def test_a_mistake_names_the_task_and_its_row(tmp_path: Path) -> None:
    write_toy(tmp_path)
    good = [{"text": f"word {n}", "label": "ab"[n % 2]} for n in range(40)]
    path = write_rows(tmp_path / "other" / "train.jsonl", [*good, {"text": "word"}])
    with pytest.raises(InputError, match=rf"^tasks.other: {re.escape(str(path))}, row 41: "):
        read_all(resolve(settings_of(tmp_path, other=tmp_path / "other")))
    write_rows(path, [])
    with pytest.raises(InputError, match=r"^tasks.other: .*has no rows"):
        read_all(resolve(settings_of(tmp_path, other=tmp_path / "other")))
    with pytest.raises(InputError, match=r"^tasks.other: .*no such file or folder"):
        read_all(resolve(settings_of(tmp_path, other=tmp_path / "absent")))


def test_their_dev_and_test_texts_are_guarded(both: Task) -> None:
    evaluation = set(evaluation_texts(both))
    for one in (both, both.auxiliary["ner"]):
        assert {example.text for example in (*one.dev, *one.test)} <= evaluation
    assert not {example.text for example in both.auxiliary["ner"].train} & evaluation


words = st.sampled_from(["Salt", "salt!", "moon", "star", "sky"])
singles = st.tuples(words)
pairs = st.tuples(words, words)


def splits_of(row: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[list[tuple[str, ...]], ...]]:
    rows = st.lists(row, min_size=1, max_size=4)
    return st.tuples(rows, rows, rows)


def made(name: str, train: list[Any], dev: list[Any], test: list[Any]) -> Task:
    """A task of single texts or of pairs, with rows in every split that no other task has."""
    is_pair = len(train[0]) == 2
    train = [*train, *((f"{name} {word}",) * len(train[0]) for word in ("more", "again"))]
    rows = {
        split: [
            Example(f"{split}{n}", texts[0], "ab"[n % 2], text_pair=texts[1] if is_pair else None)
            for n, texts in enumerate([*found, (f"{name}{split}",) * len(found[0])])
        ]
        for split, found in {"train": train, "dev": dev, "test": test}.items()
    }
    return Task.from_examples(name, rows, task_type="pair" if is_pair else "text")


def sides(row: Example) -> list[str]:
    return [text.lower().strip("!") for text in (row.text, row.text_pair) if text is not None]


def tells(learned: Example, asked: Example) -> bool:
    """Whether rows of two tasks have the same texts, or one is a text of the other."""
    one, two = sides(learned), sides(asked)
    if len(one) == len(two):
        return set(one) == set(two)
    return one[0] in two if len(one) == 1 else two[0] in one


tasks_of_both = st.tuples(splits_of(singles) | splits_of(pairs), splits_of(singles) | splits_of(pairs))


@given(tasks_of_both)
def test_leaks_between_tasks_are_counted(found: Any) -> None:
    end, other = made("end", *found[0]), made("other", *found[1])
    expected = []
    for name, asked, learned in (("the task", end, other), ("other", other, end)):
        leaking = [row for row in learned.train if any(tells(row, seen) for seen in (*asked.dev, *asked.test))]
        if count := len({tuple(sides(row)) for row in leaking}):
            expected.append((count, name))
    said = [
        (int(line.split()[0]), line.rpartition(" of ")[2])
        for line in leaks_between(replace(end, auxiliary={"other": other}))
    ]
    assert said == expected


@given(tasks_of_both)
def test_leak_free_rows_stand_in_train_of_no_task(found: Any) -> None:
    end, other = made("end", *found[0]), made("other", *found[1])
    task = replace(end, auxiliary={"other": other})
    assert sibling_tasks(task, "other") == (end,)
    for split in ("dev", "test"):
        for one, leaked, learned in (
            (end, leaked_ids(task, split), other),
            (other, leaked_ids(other, split, siblings=sibling_tasks(task, "other")), end),
        ):
            for row in one.splits[split]:
                own = any(sides(row) == sides(known) for known in one.train)
                assert (row.id in leaked) == (own or any(tells(known, row) for known in learned.train))


def test_a_wrong_key_is_that_of_the_auxiliary_task(tmp_path: Path) -> None:
    write_toy(tmp_path)
    settings: Any = settings_of(tmp_path, other=tmp_path / "task")
    settings["tasks"]["other"]["columns"] = {"label": "lable"}
    line = r"^[^ ]*train.jsonl: no column 'lable' for tasks.other.columns.label; .*mean tasks.other.columns.label=label"
    with pytest.raises(InputError, match=line):
        read_all(resolve(settings))
    one_file = tmp_path / "task.path.jsonl"
    (tmp_path / "task" / "train.jsonl").rename(one_file)
    settings["tasks"]["other"] = {"path": str(one_file), "dev_fraction": 0.6, "test_fraction": 0.6}
    settings["task"] = {"path": str(one_file)}
    with pytest.raises(InputError, match=r"^tasks.other.dev_fraction and tasks.other.test_fraction leave nothing"):
        read_all(resolve(settings))
    settings["tasks"]["other"] = {"path": str(one_file), "dev_fraction": 0}
    with pytest.raises(InputError, match=r"task.path.jsonl: a dev split .*set tasks.other.dev_fraction"):
        read_all(resolve(settings))
