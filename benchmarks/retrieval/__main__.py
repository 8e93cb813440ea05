"""Measure bulk BM25 against its peers and write `benchmarks/results/retrieval.json`.

    .venv/bin/python -m benchmarks.retrieval [--scratch FOLDER] [--engines ...] [--sizes ...] [--tasks ...]

Finished measurements are stored in the scratch folder, so that a killed benchmark resumes. The results file is written
when all measurements are finished. Linux only; nothing else should run at the same time.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from benchmarks.results_file import write_results
from benchmarks.retrieval.engines import ENGINES, PACKAGES
from benchmarks.retrieval.measure import EngineFailed, Runner
from benchmarks.retrieval.page import compare, summarize
from benchmarks.retrieval.plan import REPEATS, Journal, Measurement, Row, all_sizes, all_tasks, plan, whole_plan

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = "python -m benchmarks.retrieval"


def main() -> None:
    """Run the missing measurements of the command line, and write the results if all measurements are finished."""
    args = _arguments()
    runner = Runner(args.data.resolve(), args.scratch.resolve())
    journal = Journal(runner.scratch / "measurements.jsonl")
    if args.again:
        journal.forget(args.again)
    failed = _measure_all(runner, journal, plan(args.engines, args.sizes, args.tasks, args.repeats))
    for measurement, reason in failed.items():
        print(f"failed: {measurement} ({reason})")
    missing = [measurement for measurement in whole_plan() if measurement not in journal.rows()]
    if missing:
        print(f"no results written: {len(missing)} measurements are missing, the first of them: {missing[0]}")
    else:
        print(_write(runner, journal))
    raise SystemExit(1 if failed else 0)


def _measure_all(runner: Runner, journal: Journal, planned: list[Measurement]) -> dict[Measurement, str]:
    """Run the measurements that are not in the journal; return those that failed, with the reasons."""
    failed: dict[Measurement, str] = {}
    for number, measurement in enumerate(planned, start=1):
        if measurement in journal.rows():
            continue
        try:
            statistics = runner.measure(measurement)
        except EngineFailed as error:
            failed[measurement] = str(error)
            continue
        journal.add(measurement, statistics)
        memory = statistics["peak_memory_bytes"] / 1e9
        print(f"{number}/{len(planned)} {measurement}: {statistics['seconds']:.1f} s, {memory:.2f} GB", flush=True)
    return failed


def _write(runner: Runner, journal: Journal) -> Path:
    done = journal.rows()
    rows = [done[measurement] for measurement in whole_plan()]
    agreements = [_agreement(runner, measurement) for measurement in whole_plan() if _is_compared(measurement)]
    peers = {f"{package.replace('-', '_')}_version": version(package) for package in sorted(set(PACKAGES.values()))}
    return write_results("retrieval", COMMAND, [*rows, *agreements], {**summarize(rows, agreements), **peers})


def _is_compared(measurement: Measurement) -> bool:
    return measurement.engine == "bm25s-numba" and measurement.repeat == 1 and not measurement.cold


def _agreement(runner: Runner, peer: Measurement) -> Row:
    endtask = replace(peer, engine="endtask")
    compared = compare(runner.rankings(endtask), runner.rankings(peer))
    return {"compared_with": peer.engine, **{**asdict(endtask), **compared}}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Bulk BM25 against its peers.")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-retrieval", help="scratch folder")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--sizes", nargs="+", choices=all_sizes(), default=all_sizes())
    parser.add_argument("--tasks", nargs="+", choices=all_tasks(), default=all_tasks())
    parser.add_argument("--repeats", type=int, choices=range(1, REPEATS + 1), default=REPEATS)
    parser.add_argument("--again", nargs="+", choices=list(ENGINES), default=[], help="repeat their measurements")
    args = parser.parse_args()
    if not (args.data / "corpus").is_dir():
        parser.error(f"{args.data}: no sample data there (folders `corpus` and `tasks`); give its folder with --data")
    return args


if __name__ == "__main__":
    main()
