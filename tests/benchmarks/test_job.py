"""What benchmarks that measure case by case share: here the rows of a job, and what is asked of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from benchmarks.job import Folders, Job, failure, forget_last_case, peak_memory


@dataclass(frozen=True)
class Thing:
    """A case."""

    size: int


def test_rows_of_an_earlier_job_are_not_taken_for_those_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job((Thing(1), Thing(2)), Folders(tmp_path / "texts", tmp_path / "scratch"), tmp_path / "rows.jsonl")
    job.keep(failure(Thing(3), "too large"))
    assert job.rows.read_text(encoding="utf-8") == '{"size": 3, "error": "too large"}\n'
    given = tmp_path / "given.sh"
    given.write_text('#!/bin/sh\necho "$1 $2 $HF_HUB_OFFLINE $MORE"\nexit 3\n', encoding="utf-8")
    given.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(given))
    log = tmp_path / "log"
    assert job.run("some.module", log, 60.0, {"MORE": "more"}) == ([], 3)
    assert log.read_text(encoding="utf-8") == "-m some.module 1 more\n"


def test_memory_is_asked_of_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: asked.append(name))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7)
    forget_last_case("cpu")
    assert (asked, peak_memory("cpu")) == ([], {})
    forget_last_case("cuda")
    assert (asked, peak_memory("cuda")) == (["empty_cache", "reset_peak_memory_stats"], {"peak_memory_bytes": 7})
