"""Parse many Python files on all cores.

The workers are plain interpreters that get paths and give docstrings as JSON. `multiprocessing` would import the
user's own script again in each of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from endtask.corpus.python_files import Named, docstrings_of_file
from endtask.io.machine import usable_cores

_FEWEST_FILES_PER_WORKER = 200
_WORKER = "from endtask.corpus.parse_many import work; work()"


def docstrings_of_files(paths: Sequence[Path]) -> list[list[Named]]:
    """The docstrings of each file, in the order of the files."""
    workers = min(usable_cores(), len(paths) // _FEWEST_FILES_PER_WORKER)
    if workers < 2:
        return [docstrings_of_file(path) for path in paths]
    # Every n-th file to each worker: neighbors are of like size, so the shares are even.
    started = [_start(paths[share::workers]) for share in range(workers)]
    found: list[list[Named]] = [[] for _ in paths]
    for share, process in enumerate(started):
        assert process.stdout is not None
        with process:
            found[share::workers] = [[(name, text) for name, text in file] for file in json.load(process.stdout)]
        if process.returncode:
            raise RuntimeError(f"a parsing process ended with code {process.returncode}")
    return found


def work() -> None:
    """A worker's whole life: a list of paths on standard input, a list of docstrings per path on standard output."""
    json.dump([docstrings_of_file(Path(path)) for path in json.load(sys.stdin)], sys.stdout)


def _start(paths: Sequence[Path]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None
    json.dump([str(path) for path in paths], process.stdin)
    process.stdin.close()
    return process
