"""`endtask ls`: which runs there are, how far they are, and what they scored and cost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from endtask.io.processes import run_lock
from endtask.reporting.run_list import list_runs, run_folders
from tests.conftest import Answer


def test_states_and_scores(own_run: Path, tmp_path: Path, command: Callable[..., Answer]) -> None:
    for stage in ("model", "evaluate", "finetune"):
        half = tmp_path / "compare" / "variants" / stage
        shutil.copytree(own_run, half)
        (half / stage).rename(half / f"{stage}.partial")
    shutil.rmtree(tmp_path / "compare" / "variants" / "evaluate" / "evaluate.partial")
    new = tmp_path / "new"
    new.mkdir()
    (new / "settings.yaml").write_text("{}")
    (tmp_path / "other").mkdir()
    found = {Path(run.path).name: run for run in list_runs(tmp_path)}
    results = json.loads((own_run / "evaluate" / "results.json").read_text())["summary"]
    assert {name: run.state for name, run in found.items()} == {
        "model": "stopped in model",
        "evaluate": "until finetune",
        "finetune": "stopped in finetune",
        "new": "not started",
        "run": "finished",
    }
    assert (found["run"].score, found["run"].leak_free) == (results["mean"], results["leak_free_mean"])
    assert found["evaluate"].score is None
    assert found["run"].tokens > 0
    assert [run["path"] for run in json.loads(command("ls", tmp_path, "--json").out)] == [
        run.path for run in list_runs(tmp_path)
    ]
    lines = command("ls", tmp_path).out.splitlines()
    assert len(lines) == 6
    assert "macro-F1" in lines[-1]


def test_a_run_that_is_at_work_and_one_that_was_killed(own_run: Path) -> None:
    with run_lock(own_run):
        assert list_runs(own_run)[0].state.startswith("running")
    (own_run / ".lock-holder").write_text("1\n")  # left by a killed process
    assert list_runs(own_run)[0].state == "finished"


def test_a_damaged_run_does_not_hide_the_others(own_run: Path) -> None:
    (own_run / "read" / "manifest.json").write_text('{"fingerprint": 1}')
    (line,) = list_runs(own_run.parent)
    assert line.state.startswith("damaged: ")


def test_folders_are_searched_some_levels_deep_and_links_are_not_followed(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c" / "d" / "e"
    deep.mkdir(parents=True)
    (deep / "settings.yaml").write_text("")
    assert list(run_folders(tmp_path)) == []
    assert list(run_folders(tmp_path / "a")) == [deep]
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert list(run_folders(tmp_path / "a")) == [deep]


def test_no_folder_and_no_runs(tmp_path: Path, command: Callable[..., Answer]) -> None:
    assert command("ls", tmp_path).out == f"no runs in {tmp_path}\n"
    answer = command("ls", tmp_path / "absent")
    assert (answer.code, answer.err) == (2, f"endtask: {tmp_path / 'absent'}: no such folder\n")
