"""Measure retrieval at 1 to 8 GB, on Ray, and training by two processes; write `benchmarks/results/scale.json`.

    .venv/bin/python -m benchmarks.scale [--scratch FOLDER] [--gigabyte BYTES] [--results FOLDER]

About half an hour on two idle cores: Ray and plain processes are compared three times, in turns. Finished measurements
are stored in the scratch folder, so that a killed benchmark resumes; at the end the folder is deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.generate_corpus import QUERIES, generate
from benchmarks.results_file import RESULTS, write_results
from benchmarks.scale.job import BATCHES, LISTING, MERGING, PLAIN, RAY, SIDE_BY_SIDE, TRAINING, Job
from benchmarks.scale.page import summarize
from endtask.io.atomic import write_json, write_text
from endtask.io.machine import usable_cores

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = "python -m benchmarks.scale"
SIZES = (1, 2, 4, 8)
"""Gigabytes of text; predictions are made from the first two."""
_GIGABYTE = 10**9
_SHARDS_OF_GIGABYTE = 10
_RAY_SIZE = 2
_REPEATS = 3
"""How often Ray and plain processes are compared; the fastest counts."""
_QUERIES = 1000
_SEED = 0
_HELD_OUT = 100

Row = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """What one job measures: retrieval of some gigabytes, or training with some texts in a batch."""

    kind: str
    gigabytes: int = 0
    processes: int = 1
    repeat: int = 0
    batch: int = 0

    @property
    def name(self) -> str:
        """The name of its file in the scratch folder."""
        more = f"-{self.repeat}" if self.repeat else ""
        return f"{self.kind}-{self.batch or self.gigabytes}-{self.processes}{more}".replace(" ", "-")


def measurements() -> Iterator[Measurement]:
    """Yield what is measured."""
    cores = usable_cores()
    for batch in BATCHES:
        yield Measurement(TRAINING, batch=batch)
        yield Measurement(TRAINING, processes=2, batch=batch)
        yield Measurement(SIDE_BY_SIDE, processes=2, batch=batch // 2)
    yield Measurement(MERGING)
    yield Measurement(LISTING)
    for size in SIZES:
        for repeat in range(_REPEATS if size == _RAY_SIZE else 1):
            yield Measurement(PLAIN, size, cores, repeat)
            if size == _RAY_SIZE:
                yield Measurement(RAY, size, cores, repeat)


def main() -> None:
    """Run the missing measurements, write the results and delete the scratch folder."""
    args = _arguments()
    scratch = args.scratch.resolve()
    data = scratch / "corpus"
    shards = max(SIZES) * _SHARDS_OF_GIGABYTE
    generate(data, text_bytes=max(SIZES) * args.gigabyte, seed=_SEED, shards=shards, queries=_QUERIES)
    _write_task(data)
    rows = [_measured(scratch, data, one) for one in measurements()]
    command = COMMAND if args.gigabyte == _GIGABYTE else f"{COMMAND} --gigabyte {args.gigabyte}"
    print(write_results("scale", command, rows, summarize(rows), args.results))
    shutil.rmtree(scratch)


def _measured(scratch: Path, data: Path, one: Measurement) -> Row:
    """Return the row of a measurement; a finished one is not repeated."""
    outcome, folder = scratch / f"{one.name}.json", scratch / "measured"
    if not outcome.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folders = [folder / str(number) for number in range(one.processes if one.kind == SIDE_BY_SIDE else 1)]
        for each in folders:
            each.mkdir(parents=True)
        _run_all([_job(one, data, each) for each in folders])
        row = json.loads((folders[0] / "outcome.json").read_text(encoding="utf-8"))
        shutil.rmtree(folder)
        write_json(outcome, {"kind": one.kind, "gigabytes": one.gigabytes, **row})
        print(f"{one.name}: {row.get('total', row.get('step_seconds')):.2f} s", flush=True)
    row = json.loads(outcome.read_text(encoding="utf-8"))
    return dict(row)


def _job(one: Measurement, data: Path, folder: Path) -> Job:
    shards, outcome = one.gigabytes * _SHARDS_OF_GIGABYTE, folder / "outcome.json"
    return Job(one.kind, str(data), shards, one.processes, str(folder), str(outcome), one.batch)


def _run_all(jobs: list[Job]) -> None:
    """Run jobs at the same time, to their end."""
    running = [_start(job) for job in jobs]
    for process in running:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)


def _start(job: Job) -> subprocess.Popen[bytes]:
    """Start a job, in several processes if it trains by several."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.processes)]
    several = launcher if job.kind == TRAINING and job.processes > 1 else []
    command = [sys.executable, *several, "-m", "benchmarks.scale.job", job.to_json()]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    threads = {"OMP_NUM_THREADS": "1"} if job.kind in (TRAINING, SIDE_BY_SIDE) else {}
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **threads})


def _write_task(data: Path) -> None:
    """Write the queries as a labelled task, for training."""
    texts = [json.loads(line)["text"] for line in (data / QUERIES).read_text(encoding="utf-8").splitlines()]
    parts = {"dev": texts[:_HELD_OUT], "test": texts[_HELD_OUT : 2 * _HELD_OUT], "train": texts[2 * _HELD_OUT :]}
    (data / "task").mkdir(exist_ok=True)
    for split, part in parts.items():
        rows = ({"text": text, "label": "xy"[number % 2]} for number, text in enumerate(part))
        write_text(data / "task" / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Larger corpora and more processes.")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "benchmark-scale", help="scratch folder")
    parser.add_argument("--gigabyte", type=int, default=_GIGABYTE, help="bytes of a gigabyte; fewer for a quick trial")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
