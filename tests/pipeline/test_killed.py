"""A run killed with SIGKILL and restarted ends in the same bits as an uninterrupted run (CPU, one thread)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from endtask.io.run_layout import STAGES
from tests.toy_run import hashes, results, write_settings

DRIVER = Path(__file__).with_name("kill_driver.py")
BUDGET = "60steps"
Driven = tuple[Path, dict[str, dict[str, Any]]]


def driven(toy: Path, folder: Path, *names: str) -> Driven:
    """The folder of an unbroken run and of killed ones, which one process made, and what it says about each kill."""
    train = {"max_length": 16, "batch_size": "64tok", "checkpoint_steps": 2, "weighting": {"rho1": 2}}
    settings = write_settings(folder / "settings.json", toy, folder / "unused", pretrain=train, budget=BUDGET)
    words = [sys.executable, DRIVER, settings, folder, *names]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder, {answer["name"]: answer for answer in map(json.loads, ended.stdout.splitlines())}


@pytest.fixture(scope="module")
def all_driven(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Driven:
    return driven(toy, tmp_path_factory.mktemp("killed"))


@pytest.mark.long
@pytest.mark.slow
def test_killed_in_each_stage_and_anywhere(all_driven: Driven) -> None:
    folder, answers = all_driven
    assert [answer["stage"] for answer in answers.values() if answer["stage"]] == list(STAGES)
    assert sum("at step" in name for name in answers) == 3
    check_answers(folder, answers)


@pytest.mark.slow
def test_killed_in_some_stages(toy: Path, tmp_path: Path) -> None:
    names = ("in retrieve", "in pretrain", "in finetune")
    folder, answers = driven(toy, tmp_path, *names)
    assert tuple(answers) == names
    check_answers(folder, answers)


def check_answers(folder: Path, answers: Mapping[str, dict[str, Any]]) -> None:
    expected = results(folder / "unbroken")
    assert {"model/model.safetensors", "pack/tokenizer/tokenizer.json", "evaluate/predictions.jsonl"} <= set(expected)
    for name, answer in answers.items():
        stage, killed = answer["stage"], Path(answer["folder"])
        assert (answer["killed"], answer["again"]) == (-signal.SIGKILL, 0), name
        if stage is None:
            assert results(killed) == expected, name
        else:
            assert f"{stage}.partial" in answer["left"]
            assert stage not in answer["left"]
            assert of_stage(killed, stage) == of_stage(folder / "unbroken", stage), name
        names = [str(file.relative_to(killed)) for file in killed.rglob("*")]
        assert not [file for file in names if file.endswith(".tmp") or ".partial" in file], name


def of_stage(run: Path, stage: str) -> dict[str, str]:
    """Hashes of all that a stage wrote but its manifest, which has times."""
    found = hashes(run / stage)
    return {name: value for name, value in found.items() if name != "manifest.json"}


@pytest.mark.long
@pytest.mark.slow
def test_killed_all_over_retrieval(toy: Path, tmp_path: Path, repository: Path) -> None:
    """The same bits come out, and no shard that was finished before the kill is read again."""
    lines = (toy / "corpus.jsonl").read_text().splitlines(keepends=True)
    sources = []
    for number, name in enumerate(("north", "south", "west")):
        (tmp_path / f"{name}.jsonl").write_text("".join(lines[number::3]))
        sources.append({"path": str(tmp_path / f"{name}.jsonl")})
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "unused", corpus={"sources": sources})
    words = [sys.executable, "-m", "tests.pipeline.kill_retrieval", settings, tmp_path]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=repository)
    assert ended.returncode == 0, ended.stderr
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    expected = hashes(tmp_path / "unbroken", "retrieve/*", "select/*")
    expected = {name: value for name, value in expected.items() if not name.endswith("manifest.json")}
    assert {"retrieve/retrieved.parquet", "select/selection.parquet"} <= set(expected)
    for answer in answers:
        name = answer["name"]
        assert (answer["killed"], answer["again"]) == (-signal.SIGKILL, 0), name
        found = hashes(Path(answer["folder"]))
        assert {path: found[path] for path in expected} == expected, name
        assert answer["before"].items() <= answer["after"].items(), name
        assert len(answer["after"]) == 3, name
        assert not [path for path in found if path.endswith(".tmp") or ".partial" in path], name
    assert {len(answer["before"]) for answer in answers} == {0, 1, 2, 3}, "before, between and after shards"
    reached = " ".join(answer["name"] for answer in answers)
    assert all(place in reached for place in ("scratch/rankings/", "retrieve.partial/retrieved.parquet", "fetched"))


@pytest.mark.long
@pytest.mark.slow
def test_the_command_killed_from_outside(toy: Path, tmp_path: Path, all_driven: Driven) -> None:
    """No trick: the real command, killed by another process once pre-training has a checkpoint."""
    again = [
        sys.executable,
        "-m",
        "endtask",
        "run",
        str(all_driven[0] / "settings.json"),
        "--output",
        str(tmp_path / "run"),
    ]
    checkpoint = tmp_path / "run" / "pretrain.partial" / "checkpoint.safetensors"
    with subprocess.Popen(again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "run" / "pretrain.partial" / "manifest.json").exists()
    ended = subprocess.run(again, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "pretrain: resumes where it stopped" in ended.stderr
    assert results(tmp_path / "run") == results(all_driven[0] / "unbroken")
