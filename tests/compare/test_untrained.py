"""Untrained baselines are worked out once, and again where what they were worked out from changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.compare.untrained import untrained_baseline
from endtask.records import Example
from endtask.task import Task

TASK = Task.from_examples("toy", {"train": [Example(str(n), f"text {n}", "ab"[n % 2]) for n in range(40)]})


def test_what_is_kept_is_taken_over_until_the_way_to_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = untrained_baseline("majority", TASK, "accuracy", tmp_path, "test")
    again = untrained_baseline("majority", TASK, "accuracy", tmp_path, "test")
    assert again.seconds == first.seconds  # read, not measured again
    assert capsys.readouterr().err.count("baseline majority") == 1
    untrained_baseline("majority", TASK, "accuracy", tmp_path, "dev")
    untrained_baseline("majority", TASK, "accuracy", tmp_path, "test")
    assert capsys.readouterr().err.count("baseline majority") == 1
    monkeypatch.setattr("endtask.compare.untrained.VERSION", 0)
    untrained_baseline("majority", TASK, "accuracy", tmp_path, "test")
    assert capsys.readouterr().err.count("baseline majority") == 1
