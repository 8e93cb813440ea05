"""Measure few-example learning on a CPU and write `benchmarks/results/few_examples.json`.

.venv/bin/python -m benchmarks.few_examples                            # two idle cores, a few minutes
.venv/bin/python -m benchmarks.few_examples --runs 4 --epochs 2 --size tiny --latency-sizes tiny --results /tmp/dry
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.few_examples.measure import Row, latency, make_run, one_by_one, side_by_side
from benchmarks.few_examples.summary import KINDS, summarize
from benchmarks.results_file import RESULTS, write_results

COMMAND = "python -m benchmarks.few_examples"


def main() -> None:
    """Measure both kinds, writing results after each measurement."""
    given = _arguments()
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append(row)
        write_results("few_examples", COMMAND, rows, summarize(rows), given.results)
        print(row, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            run = make_run(Path(folder), kind, given.size)
            for _ in range(given.repeats):
                keep(side_by_side(run, kind, given.size, given.runs, given.epochs))
            keep(one_by_one(run, kind, given.size, given.reference, given.epochs))
            for size in given.latency_sizes:
                keep(latency(run if size == given.size else make_run(Path(folder), kind, size), kind, size))
    print("\n".join(f"{name}: {figure}" for name, figure in summarize(rows).items()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="How fast few-example learning is on a CPU.")
    parser.add_argument("--size", default="256x3", help="model.size of the frozen body")
    parser.add_argument("--runs", type=int, default=100, help="head-only runs side by side")
    parser.add_argument("--reference", type=int, default=2, help="runs one by one")
    parser.add_argument("--epochs", type=int, default=50, help="of each run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--latency-sizes", nargs="+", default=["256x3"], help="model.size of models to ask one by one")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
