"""`endtask bundle`, and `endtask run --bundle` on another machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.bundle import write_bundle
from tests.conftest import Answer
from tests.toy_run import results

Command = Callable[..., Answer]


@pytest.fixture
def bundle(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle in an empty working folder."""
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    return write_bundle(finished_run, tmp_path / "there" / "toy.tar.zst").file


def test_there_and_back(finished_run: Path, bundle: Path, command: Command) -> None:
    words = ("run", "--bundle", "toy.tar.zst", "--results", "results.json", "--quiet")
    answer = command(*words)
    assert answer.code == 0, answer.err
    assert [line for line in answer.out.splitlines()[1:] if not line.startswith("  ")] == [
        "report: runs/toy/report.html",
        "results: results.json",
        'try it: endtask predict runs/toy "some text"',
    ]
    assert results(Path("runs/toy")) == results(finished_run)
    found = json.loads(Path("results.json").read_text())
    assert found["test"]["rows"] == 18
    again = command(*words[:-1])
    assert again.code == 0
    assert again.err.count("finished before, skipped") == 8
    changed = command(*words, "--set", "finetune.epochs=1")
    assert changed.code == 2
    assert "redo with --from finetune" in changed.err
    assert command(*words, "--set", "finetune.epochs=1", "--from", "finetune").code == 0


def test_flags_of_run_work_with_a_bundle(bundle: Path, command: Command) -> None:
    words = (
        "run",
        "--bundle",
        bundle,
        "--output",
        "other",
        "--budget",
        "3steps",
        "--set",
        "pretrain.weighting.rho1=2",
        "--json",
    )
    answer = command(*words, "--until", "pretrain")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["stages"]["pretrain"]["steps"] == 3
    assert not Path("runs").exists()
    plan = json.loads(command(*words, "--dry-run").out)
    assert (plan["pretrain"], plan["finetune"]) == ("finished", "to do")


@pytest.mark.parametrize("kind", ["--tokens", "--text"])
def test_making_one(finished_run: Path, tmp_path: Path, command: Command, kind: str) -> None:
    answer = command("bundle", finished_run, kind, "--output", tmp_path / "x.tar.zst")
    assert answer.code == 0
    first, second = answer.out.splitlines()
    assert first.startswith(f"bundle: {tmp_path / 'x.tar.zst'}, ")
    assert "kB, 1 run (" in first
    assert second == "continue there: endtask run --bundle x.tar.zst"
    statistics = json.loads(command("bundle", finished_run, kind, "--output", tmp_path / "x.tar.zst", "--json").out)
    assert statistics["kind"] == kind.strip("-")
    assert statistics["bytes"] == (tmp_path / "x.tar.zst").stat().st_size


def test_over_the_limit(finished_run: Path, tmp_path: Path, command: Command) -> None:
    words = ("bundle", finished_run, "--output", tmp_path / "x.tar.zst", "--quiet", "--max-size")
    answer = command(*words, "2kB")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "more than the limit of 2 kB" in answer.err
    assert list(tmp_path.iterdir()) == []
    for size in ("60", "5%", "100passages"):
        wrong = command(*words, size)
        assert wrong.code == 2
        assert f"--max-size: '{size}' is not the size of a file" in wrong.err


def test_unpacking_alone(bundle: Path, command: Command) -> None:
    answer = command("bundle", bundle, "--unpack")
    assert (answer.code, answer.out) == (0, "unpacked: runs/toy\n")
    assert Path("runs/toy/pack/manifest.json").exists()
    assert json.loads(command("bundle", bundle, "--unpack", "--json").out) == {"folder": "runs/toy"}
    assert command("bundle", bundle, "--unpack", "--text").code == 2


def test_several_runs_are_for_compare(finished_run: Path, tmp_path: Path, command: Command) -> None:
    for name in ("a", "b"):
        shutil.copytree(finished_run, tmp_path / "runs" / name)
    made = command("bundle", tmp_path / "runs")
    assert made.out.splitlines()[-1] == "continue there: endtask bundle runs.tar.zst --unpack"
    for words in (("run", "--output", tmp_path / "there"), ("compare", "--output", tmp_path / "there")):
        answer = command(*words, "--bundle", tmp_path / "runs.tar.zst")
        assert answer.code == 2
        assert f"(endtask bundle {tmp_path / 'runs.tar.zst'} --unpack" in answer.err
    (tmp_path / "runs" / "compare.json").write_text("{}")
    made = command("bundle", tmp_path / "runs")
    assert made.out.splitlines()[-1] == "continue there: endtask compare --bundle runs.tar.zst"
    answer = command("run", "--bundle", tmp_path / "runs.tar.zst", "--output", tmp_path / "there")
    assert answer.code == 2
    assert f"holds 2 runs (a, b) (endtask compare --bundle {tmp_path / 'runs.tar.zst'})" in answer.err
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "data"], "--task does not go with --bundle"),
        (["--corpus", "data"], "--corpus does not go with --bundle"),
        (["--preset", "laptop"], "--preset does not go with --bundle"),
        (["settings.yaml"], "SETTINGS does not go with --bundle"),
        (["--results", "absent/results.json"], "no such folder"),
        (["--dry-run"], "--dry-run unpacks no bundle"),
        (["--set", "train.rho9=1"], "unknown setting"),
    ],
)
def test_what_does_not_go_with_a_bundle(bundle: Path, command: Command, words: list[str], said: str) -> None:
    answer = command("run", "--bundle", bundle, *words)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert "--set" in words or [entry.name for entry in Path().iterdir()] == ["toy.tar.zst"]


def test_results_without_a_bundle(own_run: Path, tmp_path: Path, command: Command) -> None:
    answer = command("run", own_run, "--results", tmp_path / "results.json", "--quiet")
    assert answer.code == 0
    assert json.loads((tmp_path / "results.json").read_text())["task"] == "task"
