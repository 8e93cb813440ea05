"""The runs below the served folder and their ids, which stand for folders in addresses."""

from __future__ import annotations

from pathlib import Path

from endtask.errors import InputError, did_you_mean
from endtask.reporting.run_list import run_folders

SEPARATOR = "~"


def run_id(folder: Path, root: Path) -> str:
    """Return the id of a run's folder: its path below the root with `~` for slashes.

    >>> run_id(Path("runs/compare/seed-0"), Path("runs")), run_id(Path("runs/a~b"), Path("runs"))
    ('compare~seed-0', 'a=7Eb')
    >>> run_id(Path("runs/chemprot"), Path("runs/chemprot"))
    'chemprot'
    """
    parts = folder.relative_to(root).parts or (folder.resolve().name,)
    return SEPARATOR.join(part.replace("=", "=3D").replace(SEPARATOR, "=7E") for part in parts)


class RunIndex:
    """Finds runs by id. Ids are looked up among the runs that are there and never become paths."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._found: dict[str, Path] = {}

    def folders(self) -> dict[str, Path]:
        """Return the folders of all runs by id."""
        self._found = {run_id(folder, self.root): folder for folder in run_folders(self.root)}
        return self._found

    def folder(self, name: str) -> Path:
        """Return the folder of a run; raises `UnknownRun` for any other id."""
        folder = self._found.get(name)
        if folder is not None and folder.is_dir():
            return folder
        folders = self.folders()
        if name not in folders:
            raise UnknownRun(f"no run {name!r}", hint=did_you_mean(name, folders) if folders else None)
        return folders[name]


class UnknownRun(InputError):
    """No run has this id."""
