"""Toy runs in processes of their own, compared with an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from functools import cached_property
from itertools import count
from pathlib import Path

from benchmarks.robustness.toy import digests, write_toy


class ToyRuns:
    """A folder with a toy task and folders of runs over it; the first use makes the undisturbed run."""

    TIMEOUT = 900

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)  # for the case of another user
        self._folder = folder
        self._numbers = count(1)
        self._settings = write_toy(folder / "données")

    def new_folder(self) -> Path:
        """Return a new empty folder."""
        folder = self._folder / f"case-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def command(self, output: Path) -> list[str]:
        """Return the command of a whole run."""
        return [sys.executable, "-m", "endtask", "run", str(self._settings), "--output", str(output)]

    def start(self, output: Path, folder: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a run whose messages can be read, with another working directory if one is given."""
        return subprocess.Popen(self.command(output), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, output: Path) -> str | None:
        """Run the same command to its end; return what is wrong with the run, if anything."""
        answer = subprocess.run(self.command(output), capture_output=True, check=False, timeout=self.TIMEOUT)
        if answer.returncode:
            return f"could not be finished: {answer.stderr.decode('utf-8', 'replace')[-300:]}"
        return self.difference(output)

    def difference(self, output: Path) -> str | None:
        """Return the first file of a finished run that differs from the undisturbed run."""
        found, expected = digests(output), self._undisturbed
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        return f"{wrong[0]} differs from an undisturbed run" if wrong else None

    @cached_property
    def _undisturbed(self) -> dict[str, str]:
        output = self.new_folder()
        subprocess.run(self.command(output), capture_output=True, check=True, timeout=self.TIMEOUT)
        found = digests(output)
        if not found:
            raise AssertionError("the undisturbed run has no results")
        return found


def problem_of_line(stderr: bytes, *, refused: bool) -> str | None:
    """Return what is wrong with the messages: a traceback, or no line from endtask at the end of a refused run."""
    text = stderr.decode("utf-8", "replace")
    if "Traceback (most recent call last)" in text:
        return f"traceback: {text.strip().splitlines()[-1][:300]}"
    if refused and not text.strip().splitlines()[-1:][0].startswith("endtask: "):
        return f"the last line is not a message: {text[-300:]}"
    return None
