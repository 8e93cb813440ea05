"""Untrained baselines are computed once, and again if their inputs change."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.experiments.baselines import compute_baseline
from endtask.records import Example
from endtask.task import Task

TASK = Task.from_examples("toy", {"train": [Example(str(n), f"text {n}", "ab"[n % 2]) for n in range(40)]})


def test_what_is_kept_is_taken_over_until_the_way_to_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = compute_baseline("majority", TASK, "accuracy", tmp_path, "test")
    again = compute_baseline("majority", TASK, "accuracy", tmp_path, "test")
    assert again.seconds == first.seconds  # read, not measured again
    assert capsys.readouterr().err.count("baseline majority") == 1
    compute_baseline("majority", TASK, "accuracy", tmp_path, "dev")
    compute_baseline("majority", TASK, "accuracy", tmp_path, "test")
    assert capsys.readouterr().err.count("baseline majority") == 1
    monkeypatch.setattr("endtask.experiments.baselines.VERSION", 0)
    compute_baseline("majority", TASK, "accuracy", tmp_path, "test")
    assert capsys.readouterr().err.count("baseline majority") == 1
