"""`endtask search`: its output, its files, and the errors for wrong arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.experiments.record import read_record
from endtask.experiments.search_result import SearchResult
from tests.conftest import Answer
from tests.experiments.search_stubs import Stubs
from tests.toy_run import write_settings

Command = Callable[..., Answer]
GRID = ["--grid", "--values", "pretrain.weighting.rho1=1,19,99"]


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs().install(monkeypatch)


@pytest.fixture
def settings(toy: Path, tmp_path: Path) -> Path:
    return write_settings(tmp_path / "my.json", toy, tmp_path / "run", device="auto", budget="30steps")


def test_a_grid(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    answer = command("search", settings, *GRID)
    assert answer.code == 0
    folder = tmp_path / "run-search"  # never the folder of the run itself
    lines = answer.out.splitlines()
    assert lines[1].split()[:3] == ["trial", "pretrain.weighting.rho1", "dev"]
    assert lines[-3].startswith("Best of 3 of 3 trials: pretrain.weighting.rho1 = 19, macro-F1")
    assert lines[-3].endswith("25.0 ± 1.0 on test (18 rows).")
    assert lines[-2:] == [f"report: {folder}/search.html", f'try it: endtask predict {folder}/trials/001 "some text"']
    assert "trial 2 of 3: pretrain.weighting.rho1 = 19" in answer.err
    assert (folder / "search.html").exists()
    again = command("search", settings, *GRID, "--quiet")
    assert (again.out, again.err) == (answer.out, "")


def test_json_is_all_there_is_on_standard_output(
    settings: Path, tmp_path: Path, command: Command, stubs: Stubs
) -> None:
    answer = command("search", settings, *GRID, "--json", "--output", tmp_path / "there", "--budget", "9steps")
    statistics = json.loads(answer.out)
    assert statistics["winner"] == json.loads((tmp_path / "there" / "search.json").read_text())["outcome"]
    assert (statistics["budget"], statistics["budget_per_trial"], statistics["winner"]["number"]) == (
        "9steps",
        "3steps",
        1,
    )


def test_trials(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    pytest.importorskip("optuna")
    space = ["--space", "pretrain.learning_rate=log:1e-4:1e-2", "--space", "pretrain.weighting.rho1=choice:1,19"]
    answer = command("search", settings, "--trials", 3, *space)
    assert answer.code == 0
    record = SearchResult.from_record(read_record(tmp_path / "run-search", "search"))
    assert record.keys == ("pretrain.learning_rate", "pretrain.weighting.rho1")
    assert len(record.finished) == 3
    assert answer.err.count("\ntrial ") + answer.err.startswith("trial ") == 4  # and that one is run to its end


def test_the_default_space(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    pytest.importorskip("optuna")
    assert command("search", settings, "--trials", 1).code == 0
    assert len(SearchResult.from_record(read_record(tmp_path / "run-search", "search")).keys) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of --grid and --trials N"),
        (["--grid", "--trials", 3], "give one of --grid and --trials N"),
        (["--trials", 3, "--values", "pretrain.weighting.rho1=1,2"], "--values go with --grid"),
        (["--grid", "--space", "pretrain.weighting.rho1=choice:1,2"], "--space goes with --trials"),
        (["--trials", 0], "at least one trial"),
        (["--trials", "many"], "--trials"),
        (["--grid", "--values", "pretrain.rho_1=1,2"], "key 'pretrain.rho_1': unknown setting"),
        (["--grid", "--values", "pretrain.weighting.rho1=1,-2"], "must be greater than or equal to 0"),
        (["--grid", "--budget", "23steps"], "23steps are too few for 24 trials (--budget 24steps)"),
        (["--grid", "--budget", "soon"], "is not an amount with a unit"),
        (["--grid", "--set", "task.path=nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    settings: Path, tmp_path: Path, command: Command, words: list[object], said: str
) -> None:
    answer = command("search", settings, *words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("endtask: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["my.json"]


def test_optuna_missing(settings: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    answer = command("search", settings, "--trials", 3)
    assert answer.err == "endtask: --trials needs Optuna (pip install 'endtask[search]')\n"
    assert not (tmp_path / "run-search").exists()


def test_no_task(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = command("search", "--grid", "--values", "pretrain.weighting.rho1=1,2")
    assert (answer.code, "task.path" in answer.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_run_as_settings(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    assert command("run", settings, "--until", "read").code == 0
    assert command("search", tmp_path / "run", *GRID).code == 0
    assert len(SearchResult.from_record(read_record(tmp_path / "run-search", "search")).finished) == 3
    assert sorted(entry.name for entry in (tmp_path / "run").iterdir() if not entry.name.startswith(".")) == [
        "read",
        "report.html",
        "run.log",
        "settings.yaml",
    ]
