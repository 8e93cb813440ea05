"""Monitor a process and its children from outside: wall time, peak memory, peak disk use.

Memory is the sum of the proportional set sizes of Linux, which count a page that n processes share as 1/n in each.
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
_SLEEP_RATIO = 20  # sleep 20 times as long as a query of the kernel takes, so that monitoring slows nothing
_DISK_INTERVAL = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """The exit status of a process (negative for a signal), its wall time, and its peak memory and disk use."""

    code: int
    seconds: float
    peak_bytes: int
    peak_disk_bytes: int


def monitor(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> Usage:
    """Run a command to its end; its disk use is that of the files below `folder`."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
    memory, disk, disk_due = PeakMemory(process.pid), 0, start
    try:
        while True:
            now = time.perf_counter()
            memory.update()
            if now >= disk_due:
                disk, disk_due = max(disk, disk_bytes(folder)), now + _DISK_INTERVAL
            if _ends_within(process, max(INTERVAL, _SLEEP_RATIO * (time.perf_counter() - now))):
                break
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.perf_counter() - start
    return Usage(process.returncode, seconds, memory.peak, max(disk, disk_bytes(folder)))


class PeakMemory:
    """The largest memory of all processes of a session over all calls of `update`."""

    def __init__(self, session: int) -> None:
        self.peak = 0
        self._session = session
        self._others: set[str] = set()  # processes of other sessions, which never join this session

    def update(self) -> None:
        """Measure the memory and update the peak.

        The kernel always knows the resident pages, but walks through all pages for proportional sizes. These are never
        larger, so they are read only if the resident pages exceed the peak.
        """
        processes = [
            entry.name for entry in os.scandir("/proc") if entry.name.isdigit() and self._in_session(entry.name)
        ]
        if sum(map(_resident, processes)) > self.peak:
            self.peak = max(self.peak, sum(map(_proportional, processes)))

    def _in_session(self, process: str) -> bool:
        if process not in self._others and _session_of(process) != self._session:
            self._others.add(process)
        return process not in self._others


def disk_bytes(folder: Path) -> int:
    """Return the disk space of the files below a folder."""
    total = 0
    for subfolder, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(subfolder, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted since it was listed
    return total


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return whether the process ends within some seconds."""
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
    """Return a file of /proc; nothing if the process ended since it was listed."""
    try:
        with open(f"/proc/{process}/{name}", "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""
