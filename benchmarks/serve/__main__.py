"""Measure `endtask serve` under load, wrong requests and random requests, on two cores.

    .venv/bin/python -m benchmarks.serve

--seconds N      seconds of load [60]
--clients N      clients at once [200]
--cases N        random requests by the OpenAPI document [1000]
--folder FOLDER  keep the trained model here, to use it again [a temporary folder]
--results FOLDER where serve.json is written [benchmarks/results]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.results_file import RESULTS, write_results
from benchmarks.serve.load import CLIENTS, SECONDS, load
from benchmarks.serve.misuse import misuse
from benchmarks.serve.model import HIDDEN, LAYERS, make_run, vocabulary_of
from benchmarks.serve.page import summarize
from benchmarks.serve.schema import CASES, schema_cases
from benchmarks.serve.server import served, use_two_cores


def main() -> None:
    """Measure and write `serve.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    cores = use_two_cores()
    with tempfile.TemporaryDirectory() as temporary:
        runs = make_run(options.folder or Path(temporary))
        rows = measure(runs, options.clients, options.seconds, options.cases)
        rows[0] |= {"cores": cores, "hidden_size": HIDDEN, "layers": LAYERS, "vocabulary": vocabulary_of(runs)}
    summary = summarize(rows)
    path = write_results("serve", "python -m benchmarks.serve", rows, summary, options.results)
    print(f"{path}: " + ", ".join(f"{name} {value}" for name, value in summary.items()))


def measure(runs: Path, clients: int, seconds: float, cases: int) -> list[dict[str, Any]]:
    """Return the rows of the three parts, measured on one server."""
    with served(runs) as server:
        rows = [asyncio.run(load(server, clients, seconds))]
        print(rows[0], flush=True)
        rows += asyncio.run(misuse(server))
        print([row for row in rows[1:] if not row["is_clean"]], flush=True)
        rows.append(schema_cases(server, cases))
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
