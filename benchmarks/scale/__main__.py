"""Measure retrieval at 1 to 8 GB, on Ray, and training by two processes; write `benchmarks/results/scale.json`.

    .venv/bin/python -m benchmarks.scale [--scratch FOLDER] [--gigabyte BYTES] [--results FOLDER]

About twenty minutes on two idle cores: Ray and plain processes are compared three times, in turns. Finished measurements
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
from pathlib import Path
from typing import Any

from benchmarks.generate_corpus import QUERIES, generate
from benchmarks.results_file import RESULTS, write_results
from benchmarks.scale.job import LISTING, MERGING, PLAIN, RAY, TRAINING, Job
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
"""How often Ray and plain processes are compared; the run of median time counts."""
_QUERIES = 1000
_SEED = 0
_HELD_OUT = 100

Row = dict[str, Any]


def measurements() -> Iterator[tuple[str, int, int, int]]:
    """Yield kind, gigabytes, processes and repeat of each measurement; the first take no gigabytes."""
    cores = usable_cores()
    yield TRAINING, 0, 1, 0
    yield TRAINING, 0, 2, 0
    yield MERGING, 0, 1, 0
    yield LISTING, 0, 1, 0
    for size in SIZES:
        if size != _RAY_SIZE:
            yield PLAIN, size, cores, 0
            continue
        for repeat in range(_REPEATS):
            yield PLAIN, size, cores, repeat
            yield RAY, size, cores, repeat


def main() -> None:
    """Run the missing measurements, write the results and delete the scratch folder."""
    args = _arguments()
    scratch = args.scratch.resolve()
    data = scratch / "corpus"
    shards = max(SIZES) * _SHARDS_OF_GIGABYTE
    generate(data, text_bytes=max(SIZES) * args.gigabyte, seed=_SEED, shards=shards, queries=_QUERIES)
    _write_task(data)
    rows = [_measured(scratch, data, *one) for one in measurements()]
    command = COMMAND if args.gigabyte == _GIGABYTE else f"{COMMAND} --gigabyte {args.gigabyte}"
    print(write_results("scale", command, rows, summarize(rows), args.results))
    shutil.rmtree(scratch)


def _measured(scratch: Path, data: Path, kind: str, size: int, processes: int, repeat: int) -> Row:
    """Return the row of a measurement; a finished one is not repeated."""
    name = f"{kind}-{size}-{processes}" + (f"-{repeat}" if repeat else "")
    outcome, folder = scratch / f"{name}.json", scratch / "measured"
    if not outcome.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        job = Job(kind, str(data), size * _SHARDS_OF_GIGABYTE, processes, str(folder), str(folder / "outcome.json"))
        _start(job)
        row = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
        shutil.rmtree(folder)
        write_json(outcome, {"kind": kind, "gigabytes": size, **row})
        print(f"{name}: {row.get('total', row.get('step_seconds')):.2f} s", flush=True)
    row = json.loads(outcome.read_text(encoding="utf-8"))
    return dict(row)


def _start(job: Job) -> None:
    """Run a job to its end, in several processes if it trains by several."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.processes)]
    several = launcher if job.kind == TRAINING and job.processes > 1 else []
    command = [sys.executable, *several, "-m", "benchmarks.scale.job", job.to_json()]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    threads = {"OMP_NUM_THREADS": "1"} if job.kind == TRAINING else {}
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path, **threads})


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
