"""Measure influence scoring against other implementations and write `benchmarks/results/selection.json`.

    .venv/bin/python -m benchmarks.selection                               # on a machine with a GPU
    .venv/bin/python -m benchmarks.selection --device cpu --size tiny      # a trial of the benchmark

Make the texts first: `python -m benchmarks.training.prepare` and `python -m benchmarks.selection.prepare`. Every peer
runs in a process of its own; the results file is written after each peer.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.job import measure
from benchmarks.results_file import RESULTS, write_results
from benchmarks.selection.cases import ENGINES, KRONFLUENCE, Row, by_process, plan
from benchmarks.selection.inputs import LABELS, TARGETS, Setup
from benchmarks.selection.page import GOALS, summarize
from benchmarks.training.cases import VOCABULARY
from benchmarks.training.inputs import ROOT, TEXTS, vocabulary_folder

COMMAND = "python -m benchmarks.selection"


def main() -> None:
    """Run the requested measurements; write the results file after each engine."""
    args = _arguments()
    setup = Setup(
        args.texts.resolve(),
        args.scratch.resolve(),
        args.vocabulary,
        args.targets,
        args.candidates,
        args.case_seconds,
        args.fitting_steps,
    )
    started = time.monotonic()
    rows: list[Row] = []
    for cases in by_process(case for case in plan(args.device, args.size) if case.engine in args.engines):
        remaining = args.seconds - (time.monotonic() - started)
        rows += measure("benchmarks.selection.job", cases, setup, min(remaining, args.engine_seconds))
        summary = summarize(rows)
        write_results("selection", args.command, rows, summary, args.results)
        print(f"{cases[0].engine}: done after {time.monotonic() - started:.0f} s; {summary}", flush=True)
    print("\n".join(f"{name}: {value}" for name, value in summary.items()))
    print(f"missing: {', '.join(name for name in GOALS if name not in summary) or 'nothing'}")
    failed = [row for row in rows if "error" in row and row["engine"] != KRONFLUENCE]
    raise SystemExit(1 if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Influence scoring against other implementations.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("110m", "tiny"), default="110m")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="the folder of `benchmarks.training.prepare`")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="the size of its vocabulary")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-selection", help="scratch folder")
    parser.add_argument(
        "--results", type=Path, help="folder of the results file; by default the scratch folder in trials"
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--targets", type=int, default=4000, help="the number of task texts")
    parser.add_argument("--candidates", type=int, default=51_200, help="how many candidates endtask scores")
    parser.add_argument("--case-seconds", type=float, default=2.0, help="how long each peer's case is timed")
    parser.add_argument("--fitting-steps", type=int, default=150, help="before precisions are compared")
    parser.add_argument("--seconds", type=float, default=290, help="the time limit of the benchmark")
    parser.add_argument("--engine-seconds", type=float, default=150, help="the time limit of each engine")
    args = parser.parse_args()
    folder = vocabulary_folder(args.texts, args.vocabulary)
    for path, maker in ((folder / "full", "training"), (folder / TARGETS / LABELS, "selection")):
        if not path.exists():
            parser.error(f"{path} is missing; make it with `python -m benchmarks.{maker}.prepare`")
    if args.results is None:
        args.results = RESULTS if (args.device, args.size) == ("cuda", "110m") else args.scratch
    args.command = COMMAND if args.device == "cuda" else f"{COMMAND} --device cpu --size {args.size}"
    return args


if __name__ == "__main__":
    main()
