"""Kill runs with SIGKILL at chosen renames and training steps and restart them; print a JSON line about each.

Every write of a run ends in a rename, so the renames of an unbroken run number all the moments that matter on disk;
a separate thread renames checkpoints, while steps continue. The unbroken run comes first, in this process; each kill and
each new start is a fork of it, which spares a dozen imports of PyTorch. A kill inside a stage starts from a copy of the
finished stages before it and ends with that stage; the kills drawn by chance run from start to end. Run as:
kill_driver.py SETTINGS FOLDER [NAME...], with the names of kills ("in pretrain"), or without for all.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from endtask.cli.main import main
from endtask.io.run_layout import STAGES
from endtask.progress.log import PROGRESS_FILE
from endtask.training.optimizer import Optimizer

RENAMES_AT_RANDOM = 2
STEPS_AT_RANDOM = 3


def run(settings: str, output: Path, until: str = STAGES[-1]) -> int:
    try:
        with redirect_stdout(io.StringIO()):
            main(["run", settings, "--output", str(output), "--until", until, "--quiet"])
    except SystemExit as ended:
        return int(ended.code or 0)


def watch_renames(output: Path, seen: Callable[[str, bool], None]) -> None:
    """Call `seen(target, done)` before and after every rename below a run's folder that every run has.

    Others, such as those of a compiler that fills its cache, happen once only; progress is written by the clock.
    """
    rename = os.replace

    def replace(source: str | Path, target: str | Path) -> None:
        is_ours = Path(target).is_relative_to(output) and Path(target).name != PROGRESS_FILE
        if is_ours:
            seen(str(target), False)
        rename(source, target)
        if is_ours:
            seen(str(target), True)

    os.replace = replace  # type: ignore[assignment]


def watch_steps(seen: Callable[[str, bool], None]) -> None:
    """Call `seen("step", done)` before and after every training step."""
    step = Optimizer.step

    def watched(optimizer: Optimizer, factor: float) -> Any:
        seen("step", False)
        outcome = step(optimizer, factor)
        seen("step", True)
        return outcome

    Optimizer.step = watched  # type: ignore[method-assign]


def in_child(work: Callable[[], int]) -> int:
    """The exit status of work done in a fork, negative for a signal."""
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Moment(NamedTuple):
    """Before or after the n-th rename or step, of one stage or of the whole run."""

    kind: str
    number: int
    done: bool
    stage: str | None = None


def killed_run(settings: str, output: Path, moment: Moment) -> int:
    counts, lock = {False: 0, True: 0}, Lock()

    def seen(target: str, now_done: bool) -> None:
        if moment.stage is not None and f"/{moment.stage}.partial/" not in target:
            return
        with lock:  # two threads rename, and one may begin while the other is at it
            if (counts[now_done], now_done) == (moment.number, moment.done):
                os.kill(os.getpid(), signal.SIGKILL)
            counts[now_done] += 1

    if moment.kind == "rename":
        watch_renames(output, seen)
    else:
        watch_steps(seen)
    return run(settings, output)


def moments(renames: list[str], steps: int) -> dict[str, Moment]:
    """The middle of every stage's work, and renames and steps of the whole run drawn by chance."""
    found = {}
    for stage in STAGES:
        inside = sum(f"/{stage}.partial/" in target for target in renames)
        found[f"in {stage}"] = Moment("rename", inside // 2, False, stage)
    chance = random.Random(0)
    for kind, total, drawn in (("rename", len(renames), RENAMES_AT_RANDOM), ("step", steps, STEPS_AT_RANDOM)):
        for number in sorted(chance.sample(range(total), drawn)):
            found[f"at {kind} {number}"] = Moment(kind, number, chance.random() < 0.5)
    return found


def unbroken_run(settings: str, output: Path) -> tuple[list[str], int]:
    """What an unbroken run renames, and how many steps it takes."""
    seen: list[str] = []
    rename, step = os.replace, Optimizer.step
    watch_renames(output, lambda target, done: seen.append(target) if done else None)
    watch_steps(lambda target, done: seen.append(target) if done else None)
    assert run(settings, output) == 0
    os.replace, Optimizer.step = rename, step  # type: ignore[method-assign]
    return [target for target in seen if target != "step"], seen.count("step")


def copy_stages_before(stage: str, unbroken: Path, output: Path) -> None:
    for name in ("settings.yaml", ".lock", "scratch", *STAGES[: STAGES.index(stage)]):
        source = unbroken / name
        if source.is_dir():
            shutil.copytree(source, output / name)
        else:
            output.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, output / name)


def drive(settings: str, folder: Path, names: list[str]) -> None:
    unbroken = folder / "unbroken"
    for place, (name, moment) in enumerate(moments(*unbroken_run(settings, unbroken)).items()):
        if names and name not in names:
            continue
        output = folder / f"killed-{place}"
        if moment.stage is not None:
            copy_stages_before(moment.stage, unbroken, output)
        status = in_child(lambda: killed_run(settings, output, moment))  # noqa: B023
        left = sorted(entry.name for entry in output.iterdir())
        again = in_child(lambda: run(settings, output, moment.stage or STAGES[-1]))  # noqa: B023
        answer = {"name": name, "folder": str(output), "killed": status, "left": left, "again": again}
        print(json.dumps({**answer, "stage": moment.stage}), flush=True)


if __name__ == "__main__":
    drive(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
