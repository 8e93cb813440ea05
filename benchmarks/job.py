"""Measurements case by case: a process for each engine, a row of figures for each case, whatever becomes of it."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    CaseT = TypeVar("CaseT", bound=DataclassInstance)

Row = dict[str, Any]
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Folders:
    """Where the texts are and where there is room to work."""

    texts: Path
    scratch: Path


BenchT = TypeVar("BenchT")


def measure(
    module: str, cases: Sequence[CaseT], bench: Folders, seconds: float, environment: Mapping[str, str] | None = None
) -> list[Row]:
    """Return the rows that `python -m module JSON` writes for the cases; a case without a row says why."""
    if seconds <= 0:
        return [failure(case, "no time was left") for case in cases]
    bench.scratch.mkdir(parents=True, exist_ok=True)
    rows_file = bench.scratch / "rows.jsonl"
    rows_file.unlink(missing_ok=True)
    job = {"cases": [asdict(case) for case in cases], "bench": asdict(bench), "rows": rows_file}
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with open(bench.scratch / f"{module}.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(job, default=str)],
            env={**os.environ, **offline, **(environment or {})},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        code = _wait(process, seconds)
    lines = rows_file.read_text(encoding="utf-8").splitlines() if rows_file.exists() else []
    reason = f"not done within {seconds:.0f} s" if code is None else f"exit status {code}"
    return [*map(json.loads, lines), *(failure(case, reason) for case in cases[len(lines) :])]


def work(case: Callable[..., CaseT], bench: Callable[..., BenchT], run: Callable[[CaseT, BenchT], Row]) -> None:
    """Do the job of the command line in this process; each finished case is a line of the rows file."""
    given = json.loads(sys.argv[1])
    folders = {name: Path(given["bench"][name]) for name in ("texts", "scratch")}
    room = bench(**{**given["bench"], **folders})
    for values in given["cases"]:
        row = attempt(run, case(**values), room)
        with open(given["rows"], "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def attempt(run: Callable[[CaseT, BenchT], Row], case: CaseT, bench: BenchT) -> Row:
    """Return the figures of one case with its peak of GPU memory, or why there are none."""
    import torch

    on_gpu = getattr(case, "device", "cpu") == "cuda"
    gc.collect()
    if on_gpu:
        torch._dynamo.reset()  # each case compiles for its own shapes, as it would alone
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        figures = run(case, bench)
        strange = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
        if strange:
            raise ArithmeticError(f"not a number: {', '.join(strange)}")
    except Exception as error:  # a peer may fail in any way: for want of memory, by its version
        traceback.print_exception(error)
        return failure(case, f"{type(error).__name__}: {error}".splitlines()[0][:_LONGEST_REASON])
    memory = {"peak_memory_bytes": torch.cuda.max_memory_allocated()} if on_gpu else {}
    return {**asdict(case), **figures, **memory}


def failure(case: DataclassInstance, reason: str) -> Row:
    """Return the row of a case that gave no figures."""
    return {**asdict(case), "error": reason}


def finished(rows: Iterable[Row], **chosen: object) -> list[Row]:
    """Return the rows with figures that have these values.

    >>> finished([{"engine": "a", "error": "none"}, {"engine": "a", "size": 1}], engine="a")
    [{'engine': 'a', 'size': 1}]
    """
    return [row for row in rows if "error" not in row and all(row[key] == value for key, value in chosen.items())]


def ratio(above: float | None, below: float | None, digits: int = 3) -> float | None:
    """Return a ratio of two figures, None where one was not measured."""
    return None if above is None or below is None else round(above / below, digits)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status, None where the process ran out of time; its children end with it."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
