"""Runs in odd surroundings: each must end in the same bits, or in one line and then in the same bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.robustness.record import Row
from benchmarks.robustness.scenarios import SCENARIOS
from benchmarks.robustness.surroundings import CASES, Surroundings, environment
from benchmarks.robustness.toy_runs import ToyRuns, problem_of_line

HELP = "runs without HOME, on full disks, with closed streams, jumping clocks, signals and others; root for mounts"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the choice of cases."""
    names = [*(case.name for case in CASES), *SCENARIOS]
    parser.add_argument("--case", action="append", choices=names, help="a case, even if it was run [all others]")
    parser.add_argument("--scratch", type=Path, help="folder for the runs, deleted after [the temporary folder]")


def measure(arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
    """Yield a row per case; cases of earlier calls are left out, and those that this user may not set up."""
    end = time.monotonic() + arguments.seconds
    done = {row["case"] for row in rows}
    with tempfile.TemporaryDirectory(prefix="endtask-environments-", dir=arguments.scratch) as folder:
        runs = ToyRuns(Path(folder))
        for name in arguments.case or [name for name in _all_names() if name not in done]:
            if time.monotonic() > end:
                return
            start = time.monotonic()
            problem = _problem_of(name, runs, arguments.seed)
            yield {"case": name, "problem": problem, "seconds": round(time.monotonic() - start, 1)}


def summarize(rows: list[Row]) -> Row:
    """Return how many cases were tried and failed; the last row of a case counts."""
    last = {row["case"]: row["problem"] for row in rows}
    failed = sum(problem is not None for problem in last.values())
    return {"environments_tried": len(last), "environments_failed": failed}


def _all_names() -> list[str]:
    """Return the names of the cases that this user may set up."""
    refused = {option for option in ("-m", "-n") if subprocess.run(["unshare", option, "true"], check=False).returncode}
    as_root = os.geteuid() == 0
    possible = [
        case.name
        for case in CASES
        if not any(f"unshare {option}" in case.shell for option in refused) and (as_root or "setpriv" not in case.shell)
    ]
    return [*possible, *SCENARIOS]


def _problem_of(name: str, runs: ToyRuns, seed: int) -> str | None:
    """Run a case by name in a new folder and return what went wrong, if anything."""
    try:
        if name in SCENARIOS:
            return SCENARIOS[name](runs, runs.new_folder(), Random(seed))
        return _problem_in(next(case for case in CASES if case.name == name), runs)
    except subprocess.TimeoutExpired:
        return f"no end after {runs.TIMEOUT} seconds"


def _problem_in(case: Surroundings, runs: ToyRuns) -> str | None:
    output, work = runs.new_folder(), runs.new_folder()
    for file, content in case.files.items():
        (work / file).write_text(content, encoding="utf-8")
    variables = environment(case, dict(os.environ), work) | {"OUT": str(output), "WORK": str(work)}
    command = ["sh", "-c", case.shell, "sh", *runs.command(output)]
    answer = subprocess.run(command, env=variables, capture_output=True, check=False, timeout=runs.TIMEOUT)
    if answer.returncode == 0 and not (work / "left").exists():
        return problem_of_line(answer.stderr, refused=False) or runs.difference(output)
    if not case.may_be_refused:
        return f"exit code {answer.returncode}: {_last_line(answer.stderr)}"
    if answer.returncode not in (0, 2):
        return f"exit code {answer.returncode} instead of 2: {_last_line(answer.stderr)}"
    if (work / "left").exists():
        shutil.copytree(work / "left", output, dirs_exist_ok=True, symlinks=True)
    return problem_of_line(answer.stderr, refused=answer.returncode == 2) or runs.finish(output)


def _last_line(stderr: bytes) -> str:
    return (stderr.decode("utf-8", "replace").strip().splitlines() or ["no line"])[-1][:300]
