"""Damaged inputs and run folders from seeds: each ends in one line or is no matter; never a traceback, a hang or a wrong result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import Any

from benchmarks.robustness.attacks import KINDS, Outcome, prepare
from benchmarks.robustness.forks import warm_up
from benchmarks.robustness.record import Row
from tests.toy_run import write_toy

HELP = "damage inputs and finished runs at random, and count tracebacks, hangs and silently wrong results"
_AT_ONCE = 60
"""Attacks in one process; another one then starts afresh."""
_ENDED = 3
"""Parts of the answer about a case that ended: number, name and failure; the first two are sent as it begins."""
_SECONDS_EACH, _SECONDS_TO_WAIT = 30, 600
"""Seconds that a command may compute, and that it may take: the machine may be busy."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of this sub-command."""
    parser.add_argument("--only", choices=sorted(KINDS), help="one kind of damage")


def measure(arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
    """Yield a row for each process's attacks."""
    warm_up()
    kinds = [arguments.only] if arguments.only else list(KINDS)
    done = {kind: sum(row["attacks"] for row in rows if row["kind"] == kind) for kind in kinds}
    ends = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory(prefix="endtask-damages-") as name:
        folder = Path(name)
        write_toy(folder / "data")
        _, problem = in_fork(folder, lambda answer: prepare(folder, command))
        if problem is not None:
            raise RuntimeError(f"the valid inputs could not be made: {problem}")
        while time.monotonic() < ends:
            kind = min(kinds, key=lambda kind: done[kind])
            row = _attack(folder, kind, arguments.seed, done[kind])
            done[kind] += row["attacks"]
            yield row


def summarize(rows: list[Row]) -> Row:
    """Return the number of inputs and of failures."""
    return {
        "fuzz_inputs": sum(row["inputs"] for row in rows),
        "fuzz_failures": sum(len(row["failures"]) for row in rows),
        **{
            f"fuzz_{kind.replace(' ', '_')}": sum(row["inputs"] for row in rows if row["kind"] == kind)
            for kind in KINDS
        },
    }


def _attack(folder: Path, kind: str, seed: int, first: int) -> Row:
    """Run some attacks in a fork; one that hangs or crashes is a failure, and ends the fork."""

    def attacks(answer: Any) -> None:
        os.chdir(folder)
        for number in range(first, first + _AT_ONCE):
            for case in KINDS[kind](folder, command, number, Random(f"{kind} {seed} {number}")):
                answer(number, case.name)
                answer(number, case.name, case.attack())

    answers, ending = in_fork(folder, attacks)
    cases = [answer for answer in answers if len(answer) == _ENDED]
    failures = [f"{number}: {name}: {failure}" for number, name, failure in cases if failure is not None]
    last = answers[-1][0] if answers else first
    if ending is not None:
        begun = answers[-1][1] if answers and len(answers[-1]) < _ENDED else "no case"
        failures.append(f"{last}: {begun}: {ending}")
        shutil.rmtree(folder / "out", ignore_errors=True)
    return {
        "kind": kind,
        "seed": seed,
        "first": first,
        "attacks": last + 1 - first,
        "inputs": len(cases) + (ending is not None),
        "failures": failures,
    }


def in_fork(folder: Path, work: Any) -> tuple[list[list[Any]], str | None]:
    """Return what a fork answers, and None or how it ended too early."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            with open(writing, "w", encoding="utf-8") as answers:
                work(lambda *case: print(json.dumps(case), file=answers, flush=True))
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as answers:
        cases = [json.loads(line) for line in answers if line.endswith("\n")]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return cases, "hangs" if code in (
        -signal.SIGALRM,
        -signal.SIGPROF,
    ) else None if code == 0 else f"the process ended with {code}"


def command(*words: str) -> Outcome:
    """Run a command in this process; an alarm ends one that hangs."""
    from endtask.cli.main import main

    code: int | None = 0
    with _captured() as texts:
        try:
            signal.setitimer(signal.ITIMER_PROF, _SECONDS_EACH)
            signal.alarm(_SECONDS_TO_WAIT)
            main(list(words))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 70
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
    return code, texts[0], texts[1]


@contextmanager
def _captured() -> Iterator[list[str]]:
    """Capture what is written to the descriptors 1 and 2; the list has it after the block."""
    texts: list[str] = []
    saved = [os.dup(number) for number in (1, 2)]
    with (
        TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            yield texts
        finally:
            for number, stream, file in ((1, sys.stdout, out), (2, sys.stderr, err)):
                stream.flush()
                os.dup2(saved[number - 1], number)
                os.close(saved[number - 1])
                file.seek(0)
                texts.append(file.read())
