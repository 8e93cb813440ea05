"""A few-shot study: variants are pre-trained, then trained on few labels; tables, tasks and devices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.experiments.few_shot.few_shot import few_shot
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from tests.conftest import Answer
from tests.experiments.few_shot.conftest import WITHOUT_LABELS
from tests.experiments.test_scheduler import HereWorker
from tests.toy_run import hashes, toy_settings

SMALL = {"labels": (12,), "samples": 2, "seeds": (0,), "epochs": 2, "batch_size": 8}


def test_workers_come_to_the_same_results(two_runs: tuple[Path, Path], tmp_path: Path) -> None:
    spec = FewShotSpec.model_validate({**SMALL, "train": ("head", "transformer")})
    alone = few_shot(two_runs, spec, tmp_path / "alone")
    spread = few_shot(two_runs, spec, tmp_path / "spread", devices=["0", "1"], start_worker=HereWorker)
    assert hashes(spread.folder, "runs/**/*.json") == hashes(alone.folder, "runs/**/*.json")
    assert spread.to_dict() | {"folder": ""} == alone.to_dict() | {"folder": ""}


def test_rows_of_tables_have_values_of_their_own(two_runs: tuple[Path, Path], tmp_path: Path) -> None:
    tables = {
        "labels": {"labels": (8, 12), "rows": [{"variant": "one"}, {"variant": "two", "title": "Second"}]},
        "epochs": {
            "title": "More epochs",
            "rows": [{"variant": "one"}, {"variant": "one", "epochs": 3, "learning_rates": [0.1], "title": "3 epochs"}],
        },
    }
    spec = FewShotSpec.model_validate({**SMALL, "tables": tables})
    outcome = few_shot(two_runs, spec, tmp_path / "out")
    assert [(table.name, table.title, table.labels) for table in outcome.tables] == [
        ("labels", "", (8, 12)),
        ("epochs", "More epochs", (12,)),
    ]
    assert [row.name for table in outcome.tables for row in table.rows] == [
        "one, head, new head",
        "Second",
        "one, head, new head",
        "3 epochs",
    ]
    folders = sorted(path.name for path in (tmp_path / "out" / "runs" / "one").iterdir())
    assert folders == ["head-new", "head-new-epochs-3"]
    assert len(list((tmp_path / "out" / "runs" / "one" / "head-new").iterdir())) == 4  # once for both tables
    assert outcome.tables[1].rows[1].entries[0].learning_rate == 0.1
    assert "<h2>More epochs</h2>" in (tmp_path / "out" / "few-shot.html").read_text()
    twice = {"t": {"rows": [{"variant": "one"}, {"variant": "one"}]}}
    with pytest.raises(InputError, match="two rows are called 'one, head, new head'"):
        few_shot(two_runs, FewShotSpec.model_validate({**SMALL, "tables": twice}), tmp_path / "twice")
    wrong = {"t": {"rows": [{"variant": "on"}]}}
    with pytest.raises(InputError, match=r"no variant is named 'on' \(did you mean 'one'\?\)"):
        few_shot(two_runs, FewShotSpec.model_validate({**SMALL, "tables": wrong}), tmp_path / "wrong")


@pytest.fixture
def study(toy: Path, tmp_path: Path) -> Path:
    """Two tasks, which are the toy task under two names, and two variants, of which tables name both."""
    shutil.copytree(toy / "task", tmp_path / "data" / "other")
    settings = toy_settings(toy, tmp_path / "unused", budget="2steps", pretrain=WITHOUT_LABELS)
    del settings["output_dir"], settings["task"]
    rows = [{"variant": "plain"}, {"variant": "fast"}]
    tree = {
        "variables": {"data": str(tmp_path / "data")},
        "settings": settings,
        "tasks": {
            "first": {"task.path": str(toy / "task")},
            "second": {"task.path": "${data}/other", "few_shot": {"folds": 3}},
        },
        "variants": {
            "plain": {},
            "fast": {"pretrain.learning_rate": 3e-2},
            "unused": {"pretrain.objectives.task.rho2": 3},
        },
        "few_shot": {**SMALL, "tables": {"main": {"rows": rows}, "one": {"rows": rows[:1], "tasks": ["first"]}}},
    }
    path = tmp_path / "my-study.json"
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.long
@pytest.mark.slow
def test_a_study_pretrains_and_trains_on_few_labels(
    study: Path, tmp_path: Path, command: Callable[..., Answer]
) -> None:
    words = ["few-shot", study, "--output", tmp_path / "out", "--set", "epochs=1"]
    answer = command(*words, "--json")
    assert answer.code == 0, answer.err
    trees = json.loads(answer.out)
    assert {name: [table["name"] for table in tree["tables"]] for name, tree in trees.items()} == {
        "first": ["main", "one"],
        "second": ["main"],
    }
    assert (trees["first"]["spec"]["folds"], trees["second"]["spec"]["folds"]) == (None, 3)
    assert trees["first"]["spec"]["epochs"] == 1
    variants = tmp_path / "out" / "first" / "variants"
    assert sorted(folder.name for folder in variants.iterdir()) == ["fast", "plain"]
    assert (variants / "fast" / "seed-0" / "pretrain" / "weights.safetensors").exists()
    made = hashes(tmp_path / "out", "*/few-shot/runs/**/*.json")
    again = command(*words, "--study-tasks", "second", "-q")
    assert (again.code, again.err) == (0, "")
    assert "task second" in again.out
    assert hashes(tmp_path / "out", "*/few-shot/runs/**/*.json") == made
    assert "--var and --study-tasks are for a study" in command("few-shot", variants / "fast", "--var", "a=b").err
