"""What every tracker is told and must do, and what it remembers for a resumed phase."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from endtask.files.atomic import write_json

PROJECT = "endtask"
"""The project or experiment under which runs are found, unless the user's environment names another."""


@dataclass(frozen=True)
class TrackedRun:
    """The phase whose curves are sent."""

    folder: Path
    """Where trackers keep their own files."""
    name: str
    settings: Mapping[str, Any]


class Tracker(Protocol):
    """A place to send curves to; any exception may come out of it, as the libraries are not ours."""

    def log(self, step: int, values: dict[str, float]) -> None:
        """Send one row."""

    def close(self, finished: bool) -> None:
        """Send what is still waiting, and say whether the phase came to its end."""


class Memory:
    """The id of a tool's run, and the last step sent of each curve, in a small JSON file.

    A resumed phase goes on in the same run and repeats steps since its last checkpoint; these tools would show their
    points twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Any] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"id": None, "sent": {}}
        )

    @property
    def id(self) -> str | None:
        """The run to go on with, if there is one."""
        found: str | None = self._kept["id"]
        return found

    def keep_id(self, value: str) -> str:
        """Remember the run's id, and return it."""
        self._kept["id"] = value
        self._write()
        return value

    def unsent(self, step: int, values: dict[str, float]) -> dict[str, float]:
        """The values not sent yet, from now on counted as sent: a kill here loses a point rather than doubling it."""
        sent = self._kept["sent"]
        fresh = {name: value for name, value in values.items() if step > sent.get(name, -1)}
        if fresh:
            sent.update(dict.fromkeys(fresh, step))
            self._write()
        return fresh

    def _write(self) -> None:
        write_json(self._path, self._kept)
