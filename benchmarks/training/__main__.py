"""Measure training against its peers and write `benchmarks/results/training.json`.

    .venv/bin/python -m benchmarks.training                        # on a machine with a GPU
    .venv/bin/python -m benchmarks.training --device cpu --merge   # on two idle cores, into the same file

Make the texts first: `python -m benchmarks.training.prepare`. Every engine runs in a process of its own; the results
file is written after each engine.
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
    ENDTASK,
    MATMUL,
    REFERENCE,
    SIZES,
    TRAINER,
    Case,
    Row,
    by_engine,
    cpu_plan,
    gpu_plan,
)
from benchmarks.training.inputs import ROOT, TEXTS, Setup
from benchmarks.training.page import GOALS, summarize
from endtask.encoders.device_context import has_amx
from endtask.io.atomic import write_json

COMMAND = "python -m benchmarks.training"
COMMANDS = {"cuda": COMMAND, "cpu": f"{COMMAND} --device cpu --merge"}
_DEFAULTS: dict[str, dict[str, float]] = {
    "cuda": {"rows": 256, "warmup": 10, "steps": 40, "seconds": 360, "engine_seconds": 180},
    "cpu": {"rows": CPU_ROWS, "warmup": 2, "steps": 10, "seconds": 3600, "engine_seconds": 2400},
}


def main() -> None:
    """Run the requested measurements; write the results file after each engine."""
    args = _arguments()
    setup = Setup(args.texts.resolve(), args.scratch.resolve(), args.warmup, args.steps)
    deadline = time.monotonic() + args.seconds
    threads = {"OMP_NUM_THREADS": str(CPU_THREADS)} if args.device == "cpu" else {}
    rows: list[Row] = []
    for cases in by_engine(_plan(args)):
        remaining = min(deadline - time.monotonic(), args.engine_seconds)
        rows += measure("benchmarks.training.job", cases, setup, remaining, threads)
        write(rows, args.device, args.merge, args.results)
        print(f"{cases[0].engine}: done after {args.seconds - (deadline - time.monotonic()):.0f} s", flush=True)
    summary = write(rows, args.device, args.merge, args.results)
    print("\n".join(f"{name}: {value}" for name, value in summary.items()))
    print(f"missing: {', '.join(name for name in GOALS if name not in summary) or 'nothing'}")
    raise SystemExit(1 if any("error" in row for row in rows) else 0)


def write(rows: list[Row], device: str, merge: bool, folder: Path = RESULTS) -> Row:
    """Write the results file and return its summary.

    With `merge`, rows of the other device stay; with rows of a GPU the file keeps the description of its machine. Rows
    of the same device are always replaced: ratios are of one run.
    """
    before = read_results("training", folder) if merge and (folder / "training.json").exists() else None
    others = [row for row in before.rows if row["device"] != device] if before else []
    merged = [*others, *rows] if device == "cpu" else [*rows, *others]
    summary = summarize(merged)
    command = " && ".join(_commands(merged))
    if before is not None and others and device == "cpu":
        changed = before.model_copy(update={"command": command, "rows": merged, "summary": summary})
        write_json(folder / "training.json", changed.model_dump(mode="json"))
    else:
        write_results("training", command, merged, summary, folder)
    return summary


def _commands(rows: list[Row]) -> list[str]:
    """Return the command of each measured device."""
    sizes = {row["device"]: row["rows"] for row in rows}
    return [
        command if sizes[device] == _DEFAULTS[device]["rows"] else f"{command} --rows {sizes[device]}"
        for device, command in COMMANDS.items()
        if device in sizes
    ]


def _plan(args: argparse.Namespace) -> list[Case]:
    cases = gpu_plan(args.rows) if args.device == "cuda" else cpu_plan(args.rows, amx=has_amx())
    sizes = args.sizes or SIZES
    requested = [case for case in cases if case.engine in args.engines and case.size in sizes]
    return [replace(case, repeat=repeat) for case in requested for repeat in range(1, args.repeats + 1)]


def _arguments() -> argparse.Namespace:
    engines = (MATMUL, ENDTASK, TRAINER, REFERENCE, COMPILED)
    parser = argparse.ArgumentParser(prog=COMMAND, description="Training speed against its peers.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--merge", action="store_true", help="keep the other device's rows of the results file")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="the folder of `benchmarks.training.prepare`")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-training", help="scratch folder")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--rows", type=int, help="full sequences of 128 tokens in a batch (256; cpu: 32)")
    parser.add_argument("--warmup", type=int, help="steps before the clock starts (10; cpu: 2)")
    parser.add_argument("--steps", type=int, help="timed steps of the largest size, more of the smaller (40; cpu: 10)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--engines", nargs="+", choices=engines, default=engines)
    parser.add_argument("--sizes", nargs="+", default=[], help="only these, such as 110m")
    parser.add_argument("--seconds", type=float, help="the time limit of the benchmark (360; cpu: 3600)")
    parser.add_argument("--engine-seconds", type=float, help="the time limit of each engine (180; cpu: 2400)")
    args = parser.parse_args()
    for name, value in _DEFAULTS[args.device].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if not (args.texts / "counts.json").exists():
        parser.error(f"{args.texts}: no texts there; make them with `python -m benchmarks.training.prepare`")
    return args


if __name__ == "__main__":
    main()
