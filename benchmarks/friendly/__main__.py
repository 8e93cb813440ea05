"""Measure first runs and write `benchmarks/results/friendly.json`.

.venv/bin/python -m benchmarks.friendly                       # two idle cores, about ten minutes; resumes

The three tasks and their corpora are sample data that no default was developed on. Whether the model beats TF-IDF there
is what a new user meets.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from benchmarks.friendly.first_runs import FIRST_RUNS, Row, first_run_row
from benchmarks.friendly.formats import format_rows
from benchmarks.friendly.page import summarize
from benchmarks.results_file import RESULTS, write_results

COMMAND = "python -m benchmarks.friendly"
ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Try the formats, then run task after task; write the results file after each."""
    args = _arguments()
    rows: list[Row] = format_rows(args.folder / "formats")
    write_results("friendly", COMMAND, rows, summarize(rows), args.results)
    for first in FIRST_RUNS:
        if args.tasks is not None and first.task not in args.tasks:
            continue
        try:
            rows.append(first_run_row(first, args.data, args.folder))
        except subprocess.CalledProcessError as error:
            rows.append({"measure": "first_run", "task": first.task, "error": str(error)})
        write_results("friendly", COMMAND, rows, summarize(rows), args.results)
    print("\n".join(f"{name}: {value}" for name, value in summarize(rows).items()))
    raise SystemExit(1 if any("error" in row for row in rows) else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description="Formats, budget, first runs against TF-IDF, 8-bit weights."
    )
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "runs" / "benchmark-friendly", help="runs; stays for resuming"
    )
    parser.add_argument("--tasks", nargs="*", choices=[first.task for first in FIRST_RUNS], help="only these")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
