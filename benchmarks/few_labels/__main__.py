"""Compare ways to learn from few labels and write `benchmarks/results/few_labels.json`.

python -m venv setfit && setfit/bin/pip install setfit          # SetFit has its own Python
.venv/bin/python -m benchmarks.few_labels --setfit-python setfit/bin/python --device cuda     # the whole table; resumes
.venv/bin/python -m benchmarks.few_labels --tasks trec_qc --draws 1 --methods few_labels frozen    # a part of it
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.few_labels.draws import LABELS, TASKS, drawn_rows, scored_rows
from benchmarks.few_labels.methods import METHODS, Draw
from benchmarks.few_labels.page import summarize
from benchmarks.results_file import RESULTS, read_results, write_results
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.task import Task

COMMAND = "python -m benchmarks.few_labels"
ROOT = Path(__file__).resolve().parent.parent.parent
Row = dict[str, Any]
_CASE = ("split", "task", "labels", "draw", "method")


def main() -> None:
    """Measure every case that the results file does not have; write the file after each."""
    args = _arguments()
    set_quiet(True)
    rows = _stored(args.results)
    done = {tuple(row[key] for key in _CASE) for row in rows}
    for case in (case for case in cases(args) if case not in done):
        row = measured(dict(zip(_CASE, case, strict=True)), args)
        rows.append(row)
        write_results("few_labels", COMMAND, rows, summarize(rows), args.results)
        print({key: value for key, value in row.items() if key != "right"}, flush=True)


def cases(args: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """Yield the cases, all methods of a draw one after the other, the first draw of everything first."""
    for draw, labels, task, method in product(range(args.draws), args.labels, args.tasks, args.methods):
        yield args.split, task, labels, draw, method


def measured(case: Row, args: argparse.Namespace) -> Row:
    """Return the row of a case: accuracy, seconds, and a digit for each scored row, 1 where the answer is right."""
    task = _task(args.data / "tasks" / case["task"])
    scored = scored_rows(task, case["split"], args.rows)
    folder = args.folder / "-".join(str(case[key]) for key in _CASE)
    rows = drawn_rows(task, case["labels"], case["draw"])
    draw = Draw(case["task"], task, rows, scored, case["draw"], folder, args.device, args.setfit_python)
    start = time.perf_counter()
    try:
        answers = METHODS[case["method"]][1](draw)
    except subprocess.CalledProcessError as error:
        raise InputError(f"{case['method']}: {error.stderr.strip().splitlines()[-1]}") from None
    seconds = time.perf_counter() - start
    shutil.rmtree(folder, ignore_errors=True)
    right = [answer == str(row.label) for answer, row in zip(answers, scored, strict=True)]
    digits = "".join(map(str, map(int, right)))
    return {**case, "accuracy": sum(right) / len(right), "seconds": round(seconds, 1), "right": digits}


@cache
def _task(path: Path) -> Task:
    return Task.read(path)


def _stored(folder: Path) -> list[Row]:
    return (
        [dict(row) for row in read_results("few_labels", folder).rows] if (folder / "few_labels.json").exists() else []
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="The preset few-labels against SetFit and plainer ways.")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--labels", nargs="+", type=int, default=LABELS, help="labelled texts in all")
    parser.add_argument("--draws", type=int, default=3, help="draws of labelled texts, and seeds")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument(
        "--split", choices=("dev", "test"), default="test", help="what is scored; choices are made on dev"
    )
    parser.add_argument("--rows", type=int, default=500, help="scored rows at most")
    parser.add_argument("--setfit-python", default="python", help="the Python that has SetFit")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "benchmark-few-labels")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
