"""Further tasks: read beside the end task, written down with it, and looked at for leaks between them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.records import Example
from endtask.retrieve.retrieve import guarded_texts
from endtask.settings import resolve
from endtask.task import Task
from endtask.task.further import leaks_between, read_all
from endtask.task.stored import read_task, task_files
from tests.toy_kinds import write_kind
from tests.toy_run import write_rows, write_toy


def settings_of(folder: Path, **tasks: Path) -> dict[str, object]:
    told = {name: {"path": str(path)} for name, path in tasks.items()}
    return {"task": {"path": str(folder / "task")}, "tasks": told, "train": {"weighting": "equal"}}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("both")
    write_toy(folder / "toy")
    write_kind(folder / "tags", "tags")
    return read_all(resolve(settings_of(folder / "toy", ner=folder / "tags" / "task")))


def test_they_are_read_under_their_names(both: Task) -> None:
    assert [(name, one.name, one.kind) for name, one in both.further.items()] == [("ner", "ner", "tags")]
    assert len(both.further["ner"].train) == 48


def test_they_are_part_of_the_whole_fingerprint(both: Task) -> None:
    alone = replace(both, further={})
    assert alone.whole_fingerprint == both.fingerprint
    other = replace(both, further={"tagger": both.further["ner"]})
    assert len({alone.whole_fingerprint, both.whole_fingerprint, other.whole_fingerprint}) == 3


def test_a_copy_holds_all_of_them(both: Task, tmp_path: Path) -> None:
    for name, content in task_files(both).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert read_task(tmp_path) == both


def test_a_copy_whose_names_lead_elsewhere_is_refused(both: Task, tmp_path: Path) -> None:
    for name, content in task_files(replace(both, further={})).items():
        (tmp_path / name).write_bytes(content)
    facts = tmp_path / "task.json"
    facts.write_text(facts.read_text().replace('"name"', '"further": ["../../x"],\n"name"', 1))
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
    guarded = set(guarded_texts(both))
    for one in (both, both.further["ner"]):
        assert {example.text for example in (*one.dev, *one.test)} <= guarded
    assert not {example.text for example in both.further["ner"].train} & guarded


texts = st.lists(st.sampled_from(["Salt", "salt!", "moon", "star", "sky", "bread"]), min_size=1, max_size=4)


def made(name: str, train: list[str], dev: list[str], test: list[str]) -> Task:
    splits = {"train": train, "dev": dev, "test": test}
    rows = {
        split: [Example(f"{split}{n}", text, "ab"[n % 2]) for n, text in enumerate([*words, f"{name}{split}"])]
        for split, words in splits.items()
    }
    rows["train"].append(Example("more", f"{name} more", "b"))
    rows["train"].append(Example("again", f"{name} again", "a"))
    return Task.from_examples(name, rows)


@given(st.tuples(texts, texts, texts), st.tuples(texts, texts, texts))
def test_leaks_between_tasks_are_counted(
    of_task: tuple[list[str], list[str], list[str]], of_other: tuple[list[str], list[str], list[str]]
) -> None:
    task = replace(made("end", *of_task), further={"other": made("other", *of_other)})

    def shared(learned: list[str], *asked: list[str]) -> int:
        unseen = {word.lower().strip("!") for words in asked for word in words}
        return len({word.lower().strip("!") for word in learned} & unseen)

    into_task, into_other = shared(of_other[0], *of_task[1:]), shared(of_task[0], *of_other[1:])
    said = [(int(line.split()[0]), line.rpartition(" of ")[2]) for line in leaks_between(task)]
    assert said == [(count, of) for count, of in ((into_task, "the task"), (into_other, "other")) if count]
