"""A process and all it started, watched from outside: wall time, peak memory, peak disk.

Memory is the sum of proportional set sizes (a page that n processes share counts as 1/n in each), as Linux gives it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.05
_COST = 20  # after n seconds of asking the kernel, 20 n of sleep: watching must not slow what is watched
_DISK_INTERVAL = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Watched:
    """How a process ended and what it took; `code` is its exit status, negative for a signal."""

    code: int
    seconds: float
    peak_bytes: int
    peak_disk_bytes: int


def watch(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> Watched:
    """Run a command to its end; `folder` is where it may leave files."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
    memory, disk, disk_due = PeakMemory(process.pid), 0, start
    try:
        while True:
            asked = time.perf_counter()
            memory.look()
            if asked >= disk_due:
                disk, disk_due = max(disk, disk_bytes(folder)), asked + _DISK_INTERVAL
            if _ended(process, max(INTERVAL, _COST * (time.perf_counter() - asked))):
                break
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.perf_counter() - start
    return Watched(process.returncode, seconds, memory.peak, max(disk, disk_bytes(folder)))


class PeakMemory:
    """The most that the processes of a session held together, each time one looked."""

    def __init__(self, session: int) -> None:
        self.peak = 0
        self._session = session
        self._others: set[str] = set()  # processes of other sessions, which never join this one

    def look(self) -> None:
        """Look once.

        The kernel counts resident pages all the time, but proportional sizes only when asked, by walking through all
        pages. Those are never larger, so they are asked for only where the resident pages exceed the earlier peak.
        """
        processes = [entry.name for entry in os.scandir("/proc") if entry.name.isdigit() and self._is_ours(entry.name)]
        if sum(map(_resident, processes)) > self.peak:
            self.peak = max(self.peak, sum(map(_proportional, processes)))

    def _is_ours(self, process: str) -> bool:
        if process not in self._others and _session_of(process) != self._session:
            self._others.add(process)
        return process not in self._others


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take up on disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted since it was listed
    return total


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ends within some seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _session_of(process: str) -> int:
    fields = _read(process, "stat").rpartition(b")")[2].split()
    return int(fields[3]) if fields else -1


def _resident(process: str) -> int:
    fields = _read(process, "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional(process: str) -> int:
    lines = _read(process, "smaps_rollup").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), 0)


def _read(process: str, name: str) -> bytes:
    """What the kernel tells of a process; nothing where it ended since it was listed."""
    try:
        with open(f"/proc/{process}/{name}", "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""
