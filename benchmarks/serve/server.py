"""A process of `endtask serve` on two cores, and its memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

CORES = 2
_SECONDS_TO_START = 120.0


@dataclass(frozen=True)
class Server:
    """A server that answers at a port of this machine."""

    process: subprocess.Popen[str]
    port: int
    csrf: str

    @property
    def address(self) -> str:
        """The address of its pages."""
        return f"http://localhost:{self.port}"

    def megabytes(self) -> float:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1000


def use_two_cores() -> int:
    """Confine this process and those that it starts to two cores, and return how many there are."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    return len(cores)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Serve a folder of runs within the block, at a free port."""
    command = [sys.executable, "-m", "endtask", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = _port(process)
        with urlopen(f"http://localhost:{port}/api/session", timeout=30) as answer:
            yield Server(process, port, json.load(answer)["csrf"])
    finally:
        process.terminate()
        process.wait(30)


def _port(process: subprocess.Popen[str]) -> int:
    """Return the port that the server prints; its later lines are read and dropped."""
    assert process.stderr is not None
    deadline = time.monotonic() + _SECONDS_TO_START
    for line in process.stderr:
        if found := re.search(r"http://localhost:(\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return int(found[1])
        if time.monotonic() > deadline:
            break
    raise RuntimeError("the server did not start")
