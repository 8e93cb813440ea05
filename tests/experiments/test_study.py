"""A study file run by `endtask compare`: several tasks, presets, tables and a shared tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.config import load_settings
from endtask.experiments.record import read_record
from tests.conftest import Answer
from tests.experiments.compare_stubs import Stubs
from tests.toy_run import toy_settings

Command = Callable[..., Answer]


@pytest.fixture
def study(toy_files: Path, tmp_path: Path) -> Path:
    """A study of two tasks, which are the toy task under two names."""
    shutil.copytree(toy_files / "task", tmp_path / "data" / "other")
    shutil.copytree(toy_files / "task", tmp_path / "data" / "task")
    settings = toy_settings(toy_files, tmp_path / "unused", device="cpu")
    del settings["output_dir"], settings["task"]
    tree = {
        "variables": {"data": "nowhere"},
        "settings": settings,
        "tasks": {
            "first": {"task.path": "${data}/task"},
            "second": {"task.path": "${data}/other", "variants": ["one", "two"], "pretrain.objectives.task.rho2": 7},
        },
        "variants": {
            "one": {"title": "The first"},
            "two": {"pretrain.learning_rate": 3e-3},
            "laptop": {"preset": "laptop", "pretrain.weighting.rho1": 3},
        },
        "seeds": [0, 1],
        "baselines": ["majority"],
        "tables": {
            "main": {"title": "Table 1", "variants": ["one", "two", "majority"], "against": "two"},
            "presets": {"variants": ["laptop", "one"], "tasks": ["first"]},
        },
    }
    path = tmp_path / "my-study.json"
    path.write_text(json.dumps(tree))
    return path


def words(study: Path, tmp_path: Path) -> list[object]:
    return ["compare", study, "--output", tmp_path / "out", "--var", f"data={tmp_path / 'data'}"]


def test_every_task_has_its_folder_tables_and_results(
    study: Path, tmp_path: Path, stubs: Stubs, command: Command
) -> None:
    answer = command(*words(study, tmp_path), "--results", tmp_path / "results", "--json")
    assert answer.code == 0, answer.err
    trees = json.loads(answer.out)
    assert list(trees) == ["first", "second"]
    tables = {task: [(each["name"], each["against"]) for each in tree["tables"]] for task, tree in trees.items()}
    assert tables == {"first": [("main", "two"), ("presets", "one")], "second": [("main", "two")]}
    rows = trees["first"]["tables"][0]["rows"]
    assert [(row["name"], row["title"]) for row in rows] == [
        ("one", "The first"),
        ("two", "two"),
        ("majority", "majority"),
    ]
    assert [row["score"]["difference"] is None for row in rows] == [False, True, False]
    assert sorted(file.name for file in (tmp_path / "results").iterdir()) == ["first.json", "second.json"]
    first, second = (tmp_path / "out" / task / "variants" for task in ("first", "second"))
    assert sorted(folder.name for folder in first.iterdir()) == ["laptop", "one", "two"]
    assert sorted(folder.name for folder in second.iterdir()) == ["one", "two"]
    made = load_settings(second / "two" / "seed-1" / "settings.yaml")
    assert (made.pretrain.objectives["task"].rho2, made.pretrain.learning_rate, made.pretrain_seed) == (7, 3e-3, 1)
    page = (tmp_path / "out" / "first" / "compare.html").read_text()
    assert "<h2>Table 1</h2>" in page
    assert "preset = laptop, pretrain.weighting.rho1 = 3" in page
    stubs.calls.clear()
    again = command("compare", tmp_path / "out" / "first", "--json")  # the folder has presets and tables too
    assert json.loads(again.out) == trees["first"]
    assert stubs.calls == []


def test_some_tasks_and_variants(study: Path, tmp_path: Path, stubs: Stubs, command: Command) -> None:
    answer = command(*words(study, tmp_path), "--study-tasks", "second", "--only", "two", "--seeds", "3")
    assert answer.code == 0, answer.err
    assert stubs.of("pretrain") == ["two/seed-3"]
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["second"]
    assert command(*words(study, tmp_path), "--study-tasks", "thrid").err.startswith(
        "endtask: key 'tasks': the study has no"
    )
    assert "no variant is named 'three'" in command(*words(study, tmp_path), "--only", "three").err


def test_a_tokenizer_that_all_variants_share(study: Path, tmp_path: Path, stubs: Stubs, command: Command) -> None:
    tree = json.loads(study.read_text())
    study.write_text(json.dumps({**tree, "shared_tokenizer": {"tokenizer.vocab_size": 300}, "tables": {}}))
    given = [*words(study, tmp_path), "--study-tasks", "first", "--seeds", "0"]
    assert command(*given).code == 0
    folder = tmp_path / "out" / "first"
    path = str(folder / "tokenizer" / "pack" / "tokenizer")
    for name in ("one", "two", "laptop"):
        assert load_settings(folder / "variants" / name / "seed-0" / "settings.yaml").tokenizer.path == path
    assert stubs.of("pack")[0] == "first/tokenizer"
    assert read_record(folder, "compare").spec["study"]["shared_tokenizer"] is None
    stubs.calls.clear()
    assert command(*given).code == 0
    assert command("compare", folder).code == 0
    assert stubs.calls == []


@pytest.mark.parametrize(
    ("changes", "flags", "said"),
    [
        ({}, ["--study", "my-study.json"], "SETTINGS is a study already"),
        ({"variants": {"a": {"pretrain.rho3": 1}}}, [], "variant 'a', key 'pretrain.rho3': unknown setting"),
        ({"tasks": {"a": {"task.pth": "x"}}}, [], "key 'task.pth': unknown setting"),
        ({"variants": {"a": {"preset": "lptop"}}}, [], "did you mean 'laptop'"),
        ({"settings": {"task.path": "${dta}/task"}}, [], "unknown variable 'dta' (did you mean 'data'?)"),
    ],
)
def test_mistakes(
    study: Path, tmp_path: Path, command: Command, changes: dict[str, object], flags: list[str], said: str
) -> None:
    tree = {**json.loads(study.read_text()), "tables": {}}
    tree["tasks"]["second"].pop("variants")
    study.write_text(json.dumps({**tree, **changes}))
    answer = command(*words(study, tmp_path), *flags)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
