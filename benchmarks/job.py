"""Measuring case by case: the job that a process of its own is given as a line of JSON, and the rows of its cases."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = dict[str, Any]


@dataclass(frozen=True)
class Folders:
    """Where the texts lie and there is room to work: the part that every bench has."""

    texts: Path
    scratch: Path


CaseT = TypeVar("CaseT")
BenchT = TypeVar("BenchT", bound=Folders)


@dataclass(frozen=True)
class Job(Generic[CaseT, BenchT]):
    """What to measure, with what, and where the rows go."""

    cases: tuple[CaseT, ...]
    bench: BenchT
    rows: Path

    def to_json(self) -> str:
        """The line that starts this job."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str, case: Callable[..., CaseT], bench: Callable[..., BenchT]) -> Job[CaseT, BenchT]:
        """The job that such a line tells of."""
        given = json.loads(text)
        folders = {name: Path(given["bench"][name]) for name in ("texts", "scratch")}
        cases = tuple(case(**one) for one in given["cases"])
        return cls(cases, bench(**{**given["bench"], **folders}), Path(given["rows"]))

    def keep(self, row: Row) -> None:
        """Add a finished row, which nothing that comes after it can harm."""
        with open(self.rows, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def run(
        self, module: str, log: Path, seconds: float, environment: Mapping[str, str] | None = None
    ) -> tuple[list[Row], int | None]:
        """The rows that `python -m module` makes of this job, and its exit status: None where it ran out of time."""
        self.bench.scratch.mkdir(parents=True, exist_ok=True)
        self.rows.unlink(missing_ok=True)
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        around = {**os.environ, **offline, **(environment or {})}
        command = [sys.executable, "-m", module, self.to_json()]
        with open(log, "ab") as file:
            process = subprocess.Popen(command, env=around, stdout=file, stderr=file, start_new_session=True)
            code = _wait(process, seconds)
        lines = self.rows.read_text(encoding="utf-8").splitlines() if self.rows.exists() else []
        return [json.loads(line) for line in lines], code


def failure(case: DataclassInstance, reason: str) -> Row:
    """The row of a case that gave no figures."""
    return {**asdict(case), "error": reason}


def forget_last_case(device: str) -> None:
    """Free what the case before this one held, so that the peak of memory is this one's own."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory(device: str) -> Row:
    """The most memory that a GPU held since the last case was forgotten; nothing is known of a CPU."""
    import torch

    return {"peak_memory_bytes": torch.cuda.max_memory_allocated()} if device == "cuda" else {}


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for the end, or make one; the data workers of a process end with it."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
