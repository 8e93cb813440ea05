"""The command line in forks of a process that has imported everything: a second each, and killed at any moment."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

SECONDS_TO_COMPUTE, SECONDS_TO_END = 120.0, 1800.0
"""After so many seconds of its own time, or of the clock, a command counts as hanging: the machine may be busy."""
_POLL = 0.002


def warm_up() -> None:
    """Import what commands import, so that forks share it; nothing is computed here, since threads do not survive forks."""
    import pyarrow.parquet  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import tokenizers  # noqa: F401
    import torch
    import transformers  # noqa: F401

    import endtask.api.fit
    import endtask.cli.main
    import endtask.experiments.compare
    import endtask.pipeline.stages
    import endtask.reporting.page
    import endtask.retrieval.retrieve
    import endtask.selectors.influence.runner  # noqa: F401

    torch.set_num_threads(1)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, negative for a signal, None if it had to be ended; and what it printed."""

    code: int | None
    output: str
    cpu_seconds: float

    @property
    def has_traceback(self) -> bool:
        """Whether a traceback reached the user."""
        return "Traceback (most recent call last)" in self.output


def run(words: list[str], folder: Path, log: Path, *, kill_after: float | None = None, delay: float = 0.0) -> Ended:
    """Run a command in a fork, in a working folder; kill it after some seconds of its own time, and a delay."""
    child = os.fork()
    if child == 0:
        _be_the_command(words, folder, log)
    return _wait(child, log, kill_after, delay)


def _be_the_command(words: list[str], folder: Path, log: Path) -> None:
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        from endtask.cli.main import main

        main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)


def _wait(child: int, log: Path, kill_after: float | None, delay: float) -> Ended:
    started, used = time.monotonic(), 0.0
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return Ended(os.waitstatus_to_exitcode(status), _read(log), used)
        used = time.clock_gettime(_clock_of(child))
        if kill_after is not None and used >= kill_after:
            time.sleep(delay)
            return Ended(_killed(child), _read(log), used)
        if used > SECONDS_TO_COMPUTE or time.monotonic() - started > SECONDS_TO_END:
            _killed(child)
            return Ended(None, _read(log), used)
        time.sleep(_POLL)


def _killed(child: int) -> int:
    """Kill a child, and return its exit code: another one if it ended before."""
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _clock_of(process: int) -> int:
    """Return Linux's clock of the time that a process has computed, which does not depend on what else the machine does."""
    return (~process << 3) | 2


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def random_moment(random: Random, seconds: float) -> tuple[float, float]:
    """Return a moment of a command that computes for some seconds, and a delay in which it may wait for the disk."""
    return random.uniform(0.0, seconds), random.choice([0.0, random.uniform(0.0, 0.02)])
