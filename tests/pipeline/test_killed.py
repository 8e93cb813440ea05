"""A run killed with SIGKILL and started again ends in the same bits as an unbroken one (CPU, one thread)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from endtask.io.run_layout import STAGES
from tests.toy_run import hashes, results, write_settings

DRIVER = Path(__file__).with_name("kill_driver.py")


@pytest.mark.slow
def test_killed_in_each_stage_and_anywhere(toy: Path, tmp_path: Path) -> None:
    """One test, since all kills share one warm process."""
    train = {"max_length": 16, "batch_size": "64tok", "checkpoint_steps": 2, "weighting": {"rho1": 2}}
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "unused", pretrain=train)
    ended = subprocess.run([sys.executable, DRIVER, settings, tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    answers = {answer["name"]: answer for answer in map(json.loads, ended.stdout.splitlines())}
    expected = results(tmp_path / "unbroken")
    assert {"model/model.safetensors", "pack/tokenizer/tokenizer.json", "evaluate/predictions.jsonl"} <= set(expected)
    for stage in STAGES:
        left = answers[f"in {stage}"]["left"]
        assert f"{stage}.partial" in left
        assert stage not in left
    assert len(answers) == len(STAGES) + 5 + 5
    assert sum("at step" in name for name in answers) == 5
    for name, answer in answers.items():
        assert (answer["killed"], answer["again"]) == (-signal.SIGKILL, 0), name
        assert results(Path(answer["folder"])) == expected, name
        names = [str(file.relative_to(answer["folder"])) for file in Path(answer["folder"]).rglob("*")]
        assert not [file for file in names if file.endswith(".tmp") or ".partial" in file], name


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


@pytest.mark.slow
def test_the_command_killed_from_outside(toy: Path, tmp_path: Path) -> None:
    """No trick: the real command, killed by another process once pre-training has a checkpoint."""
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run", budget="60steps")
    again = [sys.executable, "-m", "endtask", "run", str(settings)]
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
    # In a process of its own too: an earlier test of this one may have changed how torch computes.
    unbroken = [*again, "--output", str(tmp_path / "unbroken"), "--quiet"]
    assert subprocess.run(unbroken, check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert results(tmp_path / "run") == results(tmp_path / "unbroken")
