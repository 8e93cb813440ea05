"""The log of a run: every line that is printed, with its time, and the state of its bars, in files of its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from endtask.terminal import printable

PROGRESS_FILE = ".progress.json"
"""In the run's folder while it runs: the stage, the innermost bar and the time left, renewed every second."""
_log: RunLog | None = None


class RunLog:
    """Lines with their time; they wait in memory until the run has a folder."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._path: Path | None = None

    def open(self, path: Path) -> None:
        """Append the lines so far and all later ones to a file."""
        self._path = path
        self._append()

    def write(self, text: str) -> None:
        """Add a text of one or more lines."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self._waiting += [f"{now} {printable(line)}\n" for line in text.splitlines()]
        if self._path is not None:
            self._append()

    def write_progress(self, values: Mapping[str, Any]) -> None:
        """Replace the file with the state of the bars; nothing without a folder."""
        if self._path is None:
            return
        file = self._path.with_name(PROGRESS_FILE)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        with suppress(OSError):
            temporary.write_text(json.dumps(values), encoding="utf-8")
            os.replace(temporary, file)

    def close(self) -> None:
        """Delete the file with the state of the bars."""
        if self._path is not None:
            with suppress(OSError):
                self._path.with_name(PROGRESS_FILE).unlink(missing_ok=True)

    def _append(self) -> None:
        assert self._path is not None
        with suppress(OSError):  # a full disk stops the run elsewhere, with a message
            with open(self._path, "a", encoding="utf-8") as file:
                file.writelines(self._waiting)
            self._waiting.clear()


@contextmanager
def recorded() -> Iterator[RunLog]:
    """Record all lines printed in the block; inside another such block, its log is used. Errors are recorded too."""
    global _log
    if _log is not None:
        yield _log
        return
    _log = RunLog()
    try:
        yield _log
    except BaseException as error:
        _log.write(f"stopped: {error or type(error).__name__}")
        raise
    finally:
        _log.close()
        _log = None


def record_progress(values: Mapping[str, Any]) -> None:
    """Replace the state of the bars in the folder of the run, if one is recorded."""
    if _log is not None:
        _log.write_progress(values)


def record(line: str) -> None:
    """Add a line to the log of the run, if one is recorded."""
    if _log is not None:
        _log.write(line)


def is_recorded() -> bool:
    """Return whether lines are recorded."""
    return _log is not None
