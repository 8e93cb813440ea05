"""Measure the cost of learned weights and write `benchmarks/results/weighting.json`.

.venv/bin/python -m benchmarks.weighting                              # on a machine with a GPU, three minutes
.venv/bin/python -m benchmarks.weighting --device cpu --size 128x2 --rows 8 --held-out 4 --results /tmp/dry
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.job import attempt, failure
from benchmarks.results_file import RESULTS, write_results
from benchmarks.training.cases import SIZES
from benchmarks.weighting.endtask_engine import AUTHORS, RULES, Case, Row, Setup, plan
from benchmarks.weighting.page import GOALS, summarize

COMMAND = "python -m benchmarks.weighting"
ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Run the requested measurements; write the results file after each."""
    args = _arguments()
    setup = Setup(args.scratch.resolve(), args.warmup, args.steps)
    deadline = time.monotonic() + args.seconds
    rows: list[Row] = []
    for case in plan(args.engines, args.size, args.rows, args.held_out, args.device, args.repeats):
        rows.append(attempt(run_case, case, setup) if time.monotonic() < deadline else failure(case, "no time left"))
        write_results("weighting", COMMAND, rows, summarize(rows), args.results)
        print(rows[-1], flush=True)
    summary = summarize(rows)
    print("\n".join(f"{name}: {value}" for name, value in summary.items()))
    print(f"missing: {', '.join(name for name in GOALS if name not in summary) or 'nothing'}")
    raise SystemExit(1 if any("error" in row for row in rows) else 0)


def run_case(case: Case, setup: Setup) -> Row:
    """Run the engine of a case and return its results."""
    from benchmarks.weighting.authors import train_like_authors
    from benchmarks.weighting.endtask_engine import train_endtask

    return (train_like_authors if case.engine == AUTHORS else train_endtask)(case, setup)


def _arguments() -> argparse.Namespace:
    engines = [*RULES, AUTHORS]
    parser = argparse.ArgumentParser(prog=COMMAND, description="The cost of learned weights.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=list(SIZES), default="110m")
    parser.add_argument("--rows", type=int, default=128, help="texts of 128 tokens in a batch of each objective")
    parser.add_argument("--held-out", type=int, default=32, help="texts that fit the head, and as many held-out texts")
    parser.add_argument("--warmup", type=int, default=12, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=40, help="timed steps")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--engines", nargs="+", choices=engines, default=engines)
    parser.add_argument("--seconds", type=float, default=480, help="start no measurement after so many seconds")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-weighting", help="scratch folder")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
