"""Measure bulk BM25 against its peers and write `benchmarks/results/retrieval.json`.

    .venv/bin/python -m benchmarks.retrieval [--scratch FOLDER] [--engines ...] [--sizes ...] [--tasks ...]

Every finished measurement is noted in the scratch folder, so a killed benchmark goes on where it stopped. The results
file is written when all measurements are there. Linux only; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from benchmarks.results_file import write_results
from benchmarks.retrieval.engines import ENGINES, PACKAGES
from benchmarks.retrieval.measure import Bench, EngineFailed
from benchmarks.retrieval.page import compare, summarize
from benchmarks.retrieval.plan import REPEATS, Journal, Measurement, Row, all_sizes, all_tasks, plan, whole_plan

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = "python -m benchmarks.retrieval"


def main() -> None:
    """Do what is asked for and not yet done, then write the results if nothing is missing."""
    given = _arguments()
    bench = Bench(given.data.resolve(), given.scratch.resolve())
    journal = Journal(bench.scratch / "measurements.jsonl")
    if given.again:
        journal.forget(given.again)
    failed = _measure_all(bench, journal, plan(given.engines, given.sizes, given.tasks, given.repeats))
    for measurement, reason in failed.items():
        print(f"failed: {measurement} ({reason})")
    missing = [measurement for measurement in whole_plan() if measurement not in journal.rows()]
    if missing:
        print(f"no results written: {len(missing)} measurements are missing, the first of them: {missing[0]}")
    else:
        print(_write(bench, journal))
    raise SystemExit(1 if failed else 0)


def _measure_all(bench: Bench, journal: Journal, wanted: list[Measurement]) -> dict[Measurement, str]:
    """Measure what is not in the journal; an engine that fails does not keep the others from being measured."""
    failed: dict[Measurement, str] = {}
    for number, measurement in enumerate(wanted, start=1):
        if measurement in journal.rows():
            continue
        try:
            statistics = bench.measure(measurement)
        except EngineFailed as error:
            failed[measurement] = str(error)
            continue
        journal.add(measurement, statistics)
        memory = statistics["peak_memory_bytes"] / 1e9
        print(f"{number}/{len(wanted)} {measurement}: {statistics['seconds']:.1f} s, {memory:.2f} GB", flush=True)
    return failed


def _write(bench: Bench, journal: Journal) -> Path:
    done = journal.rows()
    rows = [done[measurement] for measurement in whole_plan()]
    agreements = [_agreement(bench, measurement) for measurement in whole_plan() if _is_compared(measurement)]
    peers = {f"{package.replace('-', '_')}_version": version(package) for package in sorted(set(PACKAGES.values()))}
    return write_results("retrieval", COMMAND, [*rows, *agreements], {**summarize(rows, agreements), **peers})


def _is_compared(measurement: Measurement) -> bool:
    return measurement.engine == "bm25s-numba" and measurement.repeat == 1 and not measurement.cold


def _agreement(bench: Bench, peer: Measurement) -> Row:
    ours = replace(peer, engine="endtask")
    compared = compare(bench.rankings(ours), bench.rankings(peer))
    return {"compared_with": peer.engine, **{**asdict(ours), **compared}}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Bulk BM25 against its peers.")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-retrieval", help="room to work")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--sizes", nargs="+", choices=all_sizes(), default=all_sizes())
    parser.add_argument("--tasks", nargs="+", choices=all_tasks(), default=all_tasks())
    parser.add_argument("--repeats", type=int, choices=range(1, REPEATS + 1), default=REPEATS)
    parser.add_argument("--again", nargs="+", choices=list(ENGINES), default=[], help="forget what is measured of them")
    given = parser.parse_args()
    if not (given.data / "corpus").is_dir():
        parser.error(f"{given.data}: no sample data there (folders `corpus` and `tasks`); name its place with --data")
    return given


if __name__ == "__main__":
    main()
