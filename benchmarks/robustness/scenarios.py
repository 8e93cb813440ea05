"""What others do to a run while it works: signals, a second process, folders that are moved or removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.robustness.toy_runs import ToyRuns, problem_of_line

Scenario = Callable[[ToyRuns, Path, Random], str | None]
"""Disturbs a run in a folder and returns what went wrong, if anything."""
_SECONDS_OF_A_RUN = 12.0
_MOST_SECONDS_TO_LEAVE = 10.0


def _signalled(number: signal.Signals, runs: ToyRuns, output: Path, random: Random) -> str | None:
    """Send a signal at a random moment: the run leaves with 128 + its number, and the same command finishes it."""
    process = runs.start(output)
    time.sleep(random.uniform(0.2, _SECONDS_OF_A_RUN))
    process.send_signal(number)
    sent = time.monotonic()
    _, errors = process.communicate(timeout=runs.TIMEOUT)
    if process.returncode not in (0, 128 + number):
        return f"exit code {process.returncode} instead of {128 + number}"
    if process.returncode and time.monotonic() - sent > _MOST_SECONDS_TO_LEAVE:
        return f"left after {time.monotonic() - sent:.0f} seconds"
    return problem_of_line(errors, refused=process.returncode != 0) or runs.finish(output)


def _paused(runs: ToyRuns, output: Path, random: Random) -> str | None:
    """Stop the process for a while, as a laptop that sleeps."""
    process = runs.start(output)
    for _ in range(3):
        time.sleep(random.uniform(0.5, 3))
        process.send_signal(signal.SIGSTOP)
        time.sleep(1)
        process.send_signal(signal.SIGCONT)
    return _ended(process, runs) or runs.difference(output)


def _two_processes(runs: ToyRuns, output: Path, random: Random) -> str | None:
    """Start the same command twice: the later one is refused, or finds a finished run."""
    processes = [runs.start(output)]
    time.sleep(random.uniform(0, 4))
    processes.append(runs.start(output))
    ends = [(process.communicate(timeout=runs.TIMEOUT)[1], process.returncode) for process in processes]
    codes = sorted(code for _, code in ends)
    if codes not in ([0, 0], [0, 2]):
        return f"exit codes {codes}"
    problems = [problem_of_line(errors, refused=code == 2) for errors, code in ends]
    return next((problem for problem in problems if problem), None) or runs.difference(output)


def _without_folder(action: str, runs: ToyRuns, output: Path, random: Random) -> str | None:
    """Remove or rename the run's folder when some stages are finished: one line, and a new run can be made."""
    process = runs.start(output)
    stage = random.choice(["read", "retrieve", "pack"])
    while process.poll() is None and not (output / stage).exists():
        time.sleep(0.005)
    if action == "renamed":
        output.rename(output.with_name(f"{output.name}-elsewhere"))
    else:
        shutil.rmtree(output, ignore_errors=True)
    _, errors = process.communicate(timeout=runs.TIMEOUT)
    if process.returncode != 2:
        return f"exit code {process.returncode} instead of 2: {errors.decode('utf-8', 'replace')[-300:]}"
    return problem_of_line(errors, refused=True) or runs.finish(output)


def _removed_working_directory(runs: ToyRuns, output: Path, random: Random) -> str | None:
    """Start in a folder and remove it: refused, and nothing is in the way of the same run elsewhere."""
    folder = runs.new_folder()
    process = runs.start(output, folder)
    folder.rmdir()
    _, stderr = process.communicate(timeout=runs.TIMEOUT)
    if process.returncode not in (0, 2):
        return f"exit code {process.returncode}"
    return problem_of_line(stderr, refused=process.returncode == 2) or runs.finish(output)


def _through_a_link(runs: ToyRuns, output: Path, random: Random) -> str | None:
    """Give a link as the run's folder."""
    link = output.with_name(f"{output.name}-link")
    os.symlink(output, link)
    return runs.finish(link) or runs.difference(output)


def _ended(process: subprocess.Popen[bytes], runs: ToyRuns) -> str | None:
    _, errors = process.communicate(timeout=runs.TIMEOUT)
    if process.returncode:
        return f"exit code {process.returncode}: {errors.decode('utf-8', 'replace')[-300:]}"
    return problem_of_line(errors, refused=False)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
SCENARIOS: dict[str, Scenario] = {
    **{f"{number.name} at a random moment": partial(_signalled, number) for number in _SIGNALS},
    "stopped and continued": _paused,
    "two processes on one run": _two_processes,
    "run folder removed": partial(_without_folder, "removed"),
    "run folder renamed": partial(_without_folder, "renamed"),
    "removed working directory": _removed_working_directory,
    "run folder is a link": _through_a_link,
}
