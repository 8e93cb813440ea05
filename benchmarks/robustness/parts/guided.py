"""Inputs that atheris finds by the lines that they reach, at every reader: each ends in one line, never in a traceback."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from benchmarks.robustness.attacks import prepare
from benchmarks.robustness.commands import RUN
from benchmarks.robustness.forks import warm_up
from benchmarks.robustness.guided import READERS, more_seeds
from benchmarks.robustness.parts.damages import command, in_fork
from benchmarks.robustness.record import Row
from tests.toy_run import write_toy

HELP = "mutate inputs by what they reach in the readers (needs atheris), and count tracebacks, hangs and memory"
_RUNS = re.compile(r"^(?:Done (\d+) runs|#(\d+)\s)", re.MULTILINE)
_ERROR = re.compile(r"Uncaught Python exception: ===\n(.*)")
_SECONDS_OF_INPUT, _MEGABYTES = 20, 4096
_GUIDED = "guided"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of this sub-command."""
    parser.add_argument("--only", choices=sorted(READERS), help="one reader")


def measure(arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
    """Yield a row for each reader; they share the time."""
    if importlib.util.find_spec("atheris") is None:
        raise SystemExit("atheris is not installed: pip install atheris")
    names = [arguments.only] if arguments.only else list(READERS)
    with tempfile.TemporaryDirectory(prefix="endtask-guided-") as name:
        folder = Path(name)
        write_seeds(folder)
        for number, reader in enumerate(names):
            seed = arguments.seed * len(READERS) + number + 1 + len(rows)  # libFuzzer takes 0 for a random one
            yield _fuzzed(reader, folder, arguments.seconds / len(names), seed)


def summarize(rows: list[Row]) -> Row:
    """Return the number of inputs and of failures."""
    return {
        "guided_inputs": sum(row["inputs"] for row in rows),
        "guided_failures": sum(row["failure"] is not None for row in rows),
    }


def write_seeds(folder: Path) -> None:
    """Write a folder of valid inputs for each reader."""
    warm_up()
    write_toy(folder / "data")
    _, problem = in_fork(folder, lambda answer: prepare(folder, command))
    if problem is not None:
        raise RuntimeError(f"the valid inputs could not be made: {problem}")
    (folder / "seeds" / "manifest.json").write_bytes((folder / RUN / "pack" / "manifest.json").read_bytes())
    for name, content in more_seeds().items():
        (folder / "seeds" / name).write_bytes(content)
    for name in READERS:
        (folder / _GUIDED / name).mkdir(parents=True)
        (folder / _GUIDED / name / "seed").write_bytes((folder / "seeds" / name).read_bytes())


def _fuzzed(name: str, folder: Path, seconds: float, seed: int) -> Row:
    options = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-seed={seed}",
        f"-timeout={_SECONDS_OF_INPUT}",
        f"-rss_limit_mb={_MEGABYTES}",
        f"-artifact_prefix={folder}/",
    ]
    words = [sys.executable, "-m", "benchmarks.robustness.guided", name, str(folder / _GUIDED / name), *options]
    ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, env=_environment())
    inputs = max((int(done or so_far) for done, so_far in _RUNS.findall(ended.stderr)), default=0)
    return {"reader": name, "seed": seed, "inputs": inputs, "failure": _failure(ended.returncode, ended.stderr, folder)}


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def _failure(code: int, log: str, folder: Path) -> str | None:
    """Return what ended a reader too early, with the start of the input; None if its time was over."""
    if code == 0:
        return None
    inputs = sorted((*folder.glob("crash-*"), *folder.glob("timeout-*"), *folder.glob("oom-*")))
    error = _ERROR.search(log)
    reason = error[1] if error else (log.splitlines() or [""])[-1]
    start = json.dumps(inputs[-1].read_bytes()[:200].decode("latin-1")) if inputs else ""
    return f"exit code {code}: {reason[:300]} {start}".strip()
