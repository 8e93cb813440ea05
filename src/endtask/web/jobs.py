"""Runs that the page starts, stops and resumes: each is a process of its own, which outlives page and server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from starlette.exceptions import HTTPException

from endtask.io.processes import is_locked

PROCESS_LOG = ".process.log"
"""In the run's folder: what the process printed, with errors before the run opens its own log."""
MOST_RUNNING = 4
"""Processes that the page starts at once; each takes all cores it can get."""
_TAIL = 65_536
_STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
"""Exit codes of a run that was asked to stop."""


class Jobs:
    """The processes that this server has started, by the folder of their run."""

    def __init__(self) -> None:
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def is_alive(self, folder: Path) -> bool:
        """Return whether a process works on a run, or is about to."""
        process = self._processes.get(folder)
        return (process is not None and process.poll() is None) or is_locked(folder)

    def start(self, folder: Path, *options: str) -> None:
        """Start or resume a run; 409 if it runs already or too many do."""
        if self.is_alive(folder):
            raise HTTPException(409, "the run goes on already")
        if sum(process.poll() is None for process in self._processes.values()) >= MOST_RUNNING:
            raise HTTPException(409, f"{MOST_RUNNING} runs go on already: stop one of them, or wait")
        command = [sys.executable, "-m", "endtask", "run", *options, "--", str(folder)]
        with open(folder / PROCESS_LOG, "wb") as output:
            # In a session of its own, so that the Ctrl-C that ends the server does not end the run.
            self._processes[folder] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def stop(self, folder: Path) -> None:
        """Ask the process of a run to stop; it keeps what it has and can be resumed. 409 if none works on it."""
        number = _holder(folder)
        if number is None:
            process = self._processes.get(folder)
            if process is None or process.poll() is not None:
                raise HTTPException(409, "no process works on this run")
            number = process.pid
        try:
            os.kill(number, signal.SIGTERM)
        except ProcessLookupError:
            return
        except PermissionError:
            raise HTTPException(409, f"process {number} belongs to another user") from None

    def problem(self, folder: Path) -> str | None:
        """Return the last line that the run's process printed if it ended with an error, not by a signal."""
        process = self._processes.get(folder)
        code = process.poll() if process is not None else None
        lines = [line for line in tail(folder / PROCESS_LOG) if line.strip()]
        if self.is_alive(folder) or not lines or (code or 0) in _STOPPED:
            return None
        is_error = lines[-1].startswith("endtask: ") and not lines[-1].startswith("endtask: stopped")
        return lines[-1] if code or (process is None and is_error) else None


def _holder(folder: Path) -> int | None:
    """Return the number of the process that holds the run's lock."""
    if not is_locked(folder):
        return None
    try:
        number = int((folder / ".lock-holder").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return number if number > 1 else None  # other numbers mean groups of processes


def tail(file: Path) -> list[str]:
    """Return the last lines of a text file, of at most 64 kB; empty if there is none."""
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _TAIL))
            content = opened.read()
    except OSError:
        return []
    lines = content.decode("utf-8", errors="replace").split("\n")
    return lines[1:] if size > _TAIL else lines
