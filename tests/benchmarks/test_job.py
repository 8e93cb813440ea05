"""Jobs of benchmarks: rows of a finished process, of a process that runs out of time, and of an engine that fails."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from benchmarks.job import Folders, Row, attempt, measure, run_job


@dataclass(frozen=True)
class Thing:
    """A case."""

    size: int


CASES = [Thing(1), Thing(2)]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "texts", tmp_path / "scratch")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_process_that_ends_early_loses_only_what_it_had_not_done(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, done = folders.scratch / "rows.jsonl", json.dumps(asdict(CASES[0]))
    folders.scratch.mkdir()
    rows.write_text('{"size": 9}\n')  # of an earlier job
    given = script(tmp_path / "given.sh", f"echo '{done}' >> {rows}\necho \"$2 $HF_HUB_OFFLINE $MORE\"\nexit 3")
    monkeypatch.setattr(sys, "executable", given)
    found = measure("some.module", CASES, folders, 60.0, {"MORE": "more"})
    assert found == [{"size": 1}, {"size": 2, "error": "exit status 3"}]
    assert (folders.scratch / "some.module.log").read_text() == "some.module 1 more\n"
    monkeypatch.setattr(sys, "executable", script(tmp_path / "slow.sh", f"echo '{done}' > {rows}\nsleep 600"))
    assert [row.get("error") for row in measure("slow", CASES, folders, 0.5)] == [None, "not done within 0 s"]
    assert [row["error"] for row in measure("none", CASES, folders, 0.0)] == ["no time was left"] * 2


def test_the_process_does_the_job_it_is_given(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.scratch.mkdir()
    rows = folders.scratch / "rows.jsonl"
    job = {"cases": [{"size": 1}, {"size": 2}], "setup": asdict(folders), "rows": rows}
    monkeypatch.setattr(sys, "argv", ["job", json.dumps(job, default=str)])

    def run(case: Thing, setup: Folders) -> Row:
        assert setup == folders
        return {"seconds": 3.0 / (case.size - 1)}  # the first breaks

    run_job(Thing, Folders, run)
    assert [json.loads(line) for line in rows.read_text().splitlines()] == [
        {"size": 1, "error": "ZeroDivisionError: float division by zero"},
        {"size": 2, "seconds": 3.0},
    ]


def test_figures_that_are_no_numbers_are_none() -> None:
    row = attempt(lambda case, setup: {"seconds": float("nan")}, CASES[0], None)
    assert row == {"size": 1, "error": "ArithmeticError: not a number: seconds"}
