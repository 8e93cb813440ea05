"""Measure training against its peers and write `benchmarks/results/training.json`.

    .venv/bin/python -m benchmarks.training                        # on a machine with a GPU
    .venv/bin/python -m benchmarks.training --device cpu --merge   # on two idle cores, into the same file

The texts are made before, by `python -m benchmarks.training.prepare`. Every engine runs in a process of its own, and
the results file is written anew after each.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.job import measure
from benchmarks.results_file import RESULTS, read_results, write_results
from benchmarks.training.cases import (
    COMPILED,
    CPU_ROWS,
    CPU_THREADS,
    MATMUL,
    OURS,
    REFERENCE,
    TRAINER,
    Case,
    Row,
    by_engine,
    cpu_plan,
    gpu_plan,
)
from benchmarks.training.inputs import ROOT, TEXTS, Bench
from benchmarks.training.page import GOALS, summarize
from endtask.io.atomic import write_json

COMMAND = "python -m benchmarks.training"
COMMANDS = {"cuda": COMMAND, "cpu": f"{COMMAND} --device cpu --merge"}
_DEFAULTS: dict[str, dict[str, float]] = {
    "cuda": {"rows": 256, "warmup": 10, "steps": 40, "seconds": 360, "engine_seconds": 180},
    "cpu": {"rows": CPU_ROWS, "warmup": 2, "steps": 10, "seconds": 3600, "engine_seconds": 2400},
}


def main() -> None:
    """Measure everything asked for, writing results after each engine."""
    given = _arguments()
    bench = Bench(given.texts.resolve(), given.scratch.resolve(), given.warmup, given.steps)
    deadline = time.monotonic() + given.seconds
    threads = {"OMP_NUM_THREADS": str(CPU_THREADS)} if given.device == "cpu" else {}
    rows: list[Row] = []
    for cases in by_engine(_plan(given)):
        left = min(deadline - time.monotonic(), given.engine_seconds)
        rows += measure("benchmarks.training.job", cases, bench, left, threads)
        write(rows, given.device, given.merge, given.results)
        print(f"{cases[0].engine}: done after {given.seconds - (deadline - time.monotonic()):.0f} s", flush=True)
    summary = write(rows, given.device, given.merge, given.results)
    print("\n".join(f"{name}: {figure}" for name, figure in summary.items()))
    print(f"not there yet: {', '.join(name for name in GOALS if name not in summary) or 'nothing'}")
    raise SystemExit(1 if any("error" in row for row in rows) else 0)


def write(rows: list[Row], device: str, merge: bool, folder: Path = RESULTS) -> Row:
    """Write the results file and give its summary.

    With `merge`, rows of the other device stay; where one of them is a GPU, so does the file's head, which tells of
    its machine. Rows of the same device are always replaced: ratios are of one run.
    """
    before = read_results("training", folder) if merge and (folder / "training.json").exists() else None
    others = [row for row in before.rows if row["device"] != device] if before else []
    together = [*others, *rows] if device == "cpu" else [*rows, *others]
    summary = summarize(together)
    command = " && ".join(_command(together))
    if before is not None and others and device == "cpu":
        changed = before.model_copy(update={"command": command, "rows": together, "summary": summary})
        write_json(folder / "training.json", changed.model_dump(mode="json"))
    else:
        write_results("training", command, together, summary, folder)
    return summary


def _command(rows: list[Row]) -> list[str]:
    """What to type for each device that was measured."""
    sizes = {row["device"]: row["rows"] for row in rows}
    return [
        command if sizes[device] == _DEFAULTS[device]["rows"] else f"{command} --rows {sizes[device]}"
        for device, command in COMMANDS.items()
        if device in sizes
    ]


def _plan(given: argparse.Namespace) -> list[Case]:
    cases = gpu_plan(given.rows) if given.device == "cuda" else cpu_plan(given.rows)
    chosen = [case for case in cases if case.engine in given.engines and (not given.sizes or case.size in given.sizes)]
    return [replace(case, repeat=repeat) for case in chosen for repeat in range(1, given.repeats + 1)]


def _arguments() -> argparse.Namespace:
    engines = (MATMUL, OURS, TRAINER, REFERENCE, COMPILED)
    parser = argparse.ArgumentParser(prog=COMMAND, description="Training speed against its peers.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--merge", action="store_true", help="keep the other device's rows of the results file")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="what `benchmarks.training.prepare` made")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-training", help="room to work")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--rows", type=int, help="full sequences of 128 tokens in a batch (256; cpu: 32)")
    parser.add_argument("--warmup", type=int, help="steps before the clock starts (10; cpu: 2)")
    parser.add_argument("--steps", type=int, help="timed steps of the largest size, more of the smaller (40; cpu: 10)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--engines", nargs="+", choices=engines, default=engines)
    parser.add_argument("--sizes", nargs="+", default=[], help="only these, such as 110m")
    parser.add_argument("--seconds", type=float, help="stop after so long, with what is there (360; cpu: 3600)")
    parser.add_argument("--engine-seconds", type=float, help="the same for each engine (180; cpu: 2400)")
    given = parser.parse_args()
    for name, value in _DEFAULTS[given.device].items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    if not (given.texts / "counts.json").exists():
        parser.error(f"{given.texts}: no texts there; make them with `python -m benchmarks.training.prepare`")
    return given


if __name__ == "__main__":
    main()
