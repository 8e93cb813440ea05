"""Kill runs with SIGKILL at chosen renames and start them again; a JSON line about each on standard output.

Every write of a run ends in a rename, so the renames of an unbroken run number all the moments that matter. The
unbroken run is done first, in this process; each kill and each new start is a fork of it, which spares a dozen
imports of PyTorch. Run as: kill_driver.py SETTINGS FOLDER
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from endtask.cli.main import main
from endtask.files.run_layout import STAGES

AT_RANDOM = 12


def run(settings: str, output: Path) -> int:
    try:
        with redirect_stdout(io.StringIO()):
            main(["run", settings, "--output", str(output), "--quiet"])
    except SystemExit as ended:
        return int(ended.code or 0)


def watch_renames(output: Path, seen: Callable[[str, bool], None]) -> None:
    """Call `seen(target, done)` before and after every rename below a run's folder.

    Others, such as those of a compiler that fills its cache, happen once only.
    """
    rename = os.replace

    def replace(source: str | Path, target: str | Path) -> None:
        is_ours = Path(target).is_relative_to(output)
        if is_ours:
            seen(str(target), False)
        rename(source, target)
        if is_ours:
            seen(str(target), True)

    os.replace = replace  # type: ignore[assignment]


def in_child(work: Callable[[], int]) -> int:
    """The exit status of work done in a fork, negative for a signal."""
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_run(settings: str, output: Path, at: int, done: bool) -> int:
    count = 0

    def seen(target: str, now_done: bool) -> None:
        nonlocal count
        if count == at and now_done == done:
            os.kill(os.getpid(), signal.SIGKILL)
        count += now_done

    watch_renames(output, seen)
    return run(settings, output)


def kill_points(targets: list[str]) -> dict[str, tuple[int, bool]]:
    """The middle of every stage's work, and as many moments of the whole run drawn by chance."""
    points = {}
    for stage in STAGES:
        inside = [number for number, target in enumerate(targets) if f"/{stage}.partial/" in target]
        points[f"in {stage}"] = (inside[len(inside) // 2], False)
    chance = random.Random(0)
    for number in sorted(chance.sample(range(len(targets)), AT_RANDOM)):
        points[f"at rename {number} of {len(targets)}"] = (number, chance.random() < 0.5)
    return points


def drive(settings: str, folder: Path) -> None:
    targets: list[str] = []
    rename = os.replace
    watch_renames(folder / "unbroken", lambda target, done: targets.append(target) if done else None)
    assert run(settings, folder / "unbroken") == 0
    os.replace = rename
    for place, (name, (at, done)) in enumerate(kill_points(targets).items()):
        output = folder / f"killed-{place}"
        status = in_child(lambda: killed_run(settings, output, at, done))  # noqa: B023
        left = sorted(entry.name for entry in output.iterdir())
        again = in_child(lambda: run(settings, output))  # noqa: B023
        answer = {"name": name, "folder": str(output), "killed": status, "left": left, "again": again}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    drive(sys.argv[1], Path(sys.argv[2]))
