"""Run the measurements of a benchmark: a process for each engine, a row of results or an error for each case."""

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
    """The folder of the texts, and a scratch folder."""

    texts: Path
    scratch: Path


SetupT = TypeVar("SetupT")


def measure(
    module: str, cases: Sequence[CaseT], setup: Folders, seconds: float, environment: Mapping[str, str] | None = None
) -> list[Row]:
    """Return the rows that `python -m module JSON` writes for the cases; a case that fails has a row with the error."""
    if seconds <= 0:
        return [failure(case, "no time was left") for case in cases]
    setup.scratch.mkdir(parents=True, exist_ok=True)
    rows_file = setup.scratch / "rows.jsonl"
    rows_file.unlink(missing_ok=True)
    job = {"cases": [asdict(case) for case in cases], "setup": asdict(setup), "rows": rows_file}
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with open(setup.scratch / f"{module}.log", "ab") as log:
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


def run_job(case: Callable[..., CaseT], setup: Callable[..., SetupT], run: Callable[[CaseT, SetupT], Row]) -> None:
    """Run the cases of the job on the command line; each finished case is a line of the rows file."""
    job = json.loads(sys.argv[1])
    folders = {name: Path(job["setup"][name]) for name in ("texts", "scratch")}
    case_setup = setup(**{**job["setup"], **folders})
    for values in job["cases"]:
        row = attempt(run, case(**values), case_setup)
        with open(job["rows"], "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def attempt(run: Callable[[CaseT, SetupT], Row], case: CaseT, setup: SetupT) -> Row:
    """Return the results of a case with its peak GPU memory, or a row with the error."""
    import torch

    on_gpu = getattr(case, "device", "cpu") == "cuda"
    gc.collect()
    if on_gpu:
        torch._dynamo.reset()  # each case compiles for its own shapes, as in a process of its own
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        values = run(case, setup)
        invalid = [name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
        if invalid:
            raise ArithmeticError(f"not a number: {', '.join(invalid)}")
    except Exception as error:  # a peer may raise anything, such as out of memory
        traceback.print_exception(error)
        return failure(case, f"{type(error).__name__}: {error}".splitlines()[0][:_LONGEST_REASON])
    memory = {"peak_memory_bytes": torch.cuda.max_memory_allocated()} if on_gpu else {}
    return {**asdict(case), **values, **memory}


def failure(case: DataclassInstance, reason: str) -> Row:
    """Return the row of a case that failed."""
    return {**asdict(case), "error": reason}


def finished(rows: Iterable[Row], **values: object) -> list[Row]:
    """Return the rows without errors that have these values.

    >>> finished([{"engine": "a", "error": "none"}, {"engine": "a", "size": 1}], engine="a")
    [{'engine': 'a', 'size': 1}]
    """
    return [row for row in rows if "error" not in row and all(row[key] == value for key, value in values.items())]


def ratio(above: float | None, below: float | None, digits: int = 3) -> float | None:
    """Return a rounded ratio, None if one of the numbers was not measured."""
    return None if above is None or below is None else round(above / below, digits)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status, None if the time is over; then kill the process and its children."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
