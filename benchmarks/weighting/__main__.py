"""Measure what learned weights cost and write `benchmarks/results/weighting.json`.

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
from benchmarks.weighting.ours import AUTHORS, RULES, Bench, Case, Row, plan
from benchmarks.weighting.page import GOALS, summarize

COMMAND = "python -m benchmarks.weighting"
ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Measure everything asked for, writing results after each measurement."""
    given = _arguments()
    bench = Bench(given.scratch.resolve(), given.warmup, given.steps)
    deadline = time.monotonic() + given.seconds
    rows: list[Row] = []
    for case in plan(given.engines, given.size, given.rows, given.held_out, given.device, given.repeats):
        rows.append(attempt(run_case, case, bench) if time.monotonic() < deadline else failure(case, "no time left"))
        write_results("weighting", COMMAND, rows, summarize(rows), given.results)
        print(rows[-1], flush=True)
    summary = summarize(rows)
    print("\n".join(f"{name}: {figure}" for name, figure in summary.items()))
    print(f"not there yet: {', '.join(name for name in GOALS if name not in summary) or 'nothing'}")
    raise SystemExit(1 if any("error" in row for row in rows) else 0)


def run_case(case: Case, bench: Bench) -> Row:
    """Train, and return the figures."""
    from benchmarks.weighting.authors import authors_way
    from benchmarks.weighting.ours import ours

    return authors_way(case, bench) if case.engine == AUTHORS else ours(case, bench)


def _arguments() -> argparse.Namespace:
    engines = [*RULES, AUTHORS]
    parser = argparse.ArgumentParser(prog=COMMAND, description="What learned weights cost.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=list(SIZES), default="110m")
    parser.add_argument("--rows", type=int, default=128, help="texts of 128 tokens in a batch of each objective")
    parser.add_argument("--held-out", type=int, default=32, help="texts to fit the head to, and as many to judge it")
    parser.add_argument("--warmup", type=int, default=12, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=40, help="timed steps")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--engines", nargs="+", choices=engines, default=engines)
    parser.add_argument("--seconds", type=float, default=480, help="start nothing more after so long")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-weighting", help="room to work")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
