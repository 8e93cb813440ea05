"""Measure scoring by influence against other ways and write `benchmarks/results/selection.json`.

    .venv/bin/python -m benchmarks.selection                               # on a machine with a GPU
    .venv/bin/python -m benchmarks.selection --device cpu --size tiny      # whether everything runs

The texts are made before, by `python -m benchmarks.training.prepare` and `python -m benchmarks.selection.prepare`.
Every peer runs in a process of its own, and the results file is written anew after each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.job import measure
from benchmarks.results_file import RESULTS, write_results
from benchmarks.selection.cases import ENGINES, KRONFLUENCE, Row, by_process, plan
from benchmarks.selection.inputs import LABELS, TARGETS, Bench
from benchmarks.selection.page import GOALS, summarize
from benchmarks.training.cases import VOCABULARY
from benchmarks.training.inputs import ROOT, TEXTS, vocabulary_folder

COMMAND = "python -m benchmarks.selection"


def main() -> None:
    """Measure everything asked for, writing results after each engine."""
    given = _arguments()
    bench = Bench(
        given.texts.resolve(),
        given.scratch.resolve(),
        given.vocabulary,
        given.targets,
        given.candidates,
        given.case_seconds,
        given.fitting_steps,
    )
    started = time.monotonic()
    rows: list[Row] = []
    for cases in by_process(case for case in plan(given.device, given.size) if case.engine in given.engines):
        left = given.seconds - (time.monotonic() - started)
        rows += measure("benchmarks.selection.job", cases, bench, min(left, given.engine_seconds))
        summary = summarize(rows)
        write_results("selection", given.command, rows, summary, given.results)
        print(f"{cases[0].engine}: done after {time.monotonic() - started:.0f} s; {summary}", flush=True)
    print("\n".join(f"{name}: {figure}" for name, figure in summary.items()))
    print(f"not there yet: {', '.join(name for name in GOALS if name not in summary) or 'nothing'}")
    failed = [row for row in rows if "error" in row and row["engine"] != KRONFLUENCE]
    raise SystemExit(1 if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Scoring by influence against other ways.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("110m", "tiny"), default="110m")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="what `benchmarks.training.prepare` made")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="which of the vocabularies there")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-selection", help="room to work")
    parser.add_argument("--results", type=Path, help="folder of the results file; of a mere trial the scratch folder")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--targets", type=int, default=4000, help="task texts to score by")
    parser.add_argument("--candidates", type=int, default=51_200, help="what our engine scores while it is timed")
    parser.add_argument("--case-seconds", type=float, default=2.0, help="how long each other case is timed")
    parser.add_argument("--fitting-steps", type=int, default=150, help="before precisions are compared")
    parser.add_argument("--seconds", type=float, default=290, help="stop after so long, with what is there")
    parser.add_argument("--engine-seconds", type=float, default=150, help="the same for each engine")
    given = parser.parse_args()
    folder = vocabulary_folder(given.texts, given.vocabulary)
    for path, maker in ((folder / "full", "training"), (folder / TARGETS / LABELS, "selection")):
        if not path.exists():
            parser.error(f"{path} is not there; make it with `python -m benchmarks.{maker}.prepare`")
    if given.results is None:
        given.results = RESULTS if (given.device, given.size) == ("cuda", "110m") else given.scratch
    given.command = COMMAND if given.device == "cuda" else f"{COMMAND} --device cpu --size {given.size}"
    return given


if __name__ == "__main__":
    main()
