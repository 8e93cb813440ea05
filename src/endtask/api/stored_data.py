"""Data in memory as files of the run's folder: written whole, compared with what is there, and put back on errors."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.api.cells import json_lines
from endtask.config import Settings, dump_yaml
from endtask.errors import InputError
from endtask.io.atomic import disk_errors_named, remove_folder, write_text
from endtask.io.digests import file_digest
from endtask.io.processes import make_output_folder, run_lock
from endtask.io.run_layout import SETTINGS_FILE
from endtask.pipeline.redo import previous_of

DATA = "data"
"""In the run's folder: the data that `fit` was called with."""
CORPUS = "corpus.jsonl"
_TEMPORARY = ".data.tmp"


@dataclass(frozen=True)
class MemoryTable:
    """Rows to be stored under a file name; `name` is how messages call them."""

    file: str
    name: str
    rows: Sequence[Mapping[Any, Any]]

    def lines(self) -> Iterator[bytes]:
        """Yield the content of the file."""
        return json_lines(self.rows, path=self.name)


Tables = Sequence[MemoryTable]


def digest_of(tables: Tables) -> str:
    """Return a hash of the files' names and bytes; raises `InputError` for a cell that cannot be stored."""
    state = hashlib.blake2b(digest_size=16)
    for table in tables:
        state.update(f"{table.file}\n".encode())
        for line in table.lines():
            state.update(line)
    return state.hexdigest()


@contextmanager
def stored_data(tables: Tables, settings: Settings, *, replace: bool) -> Iterator[None]:
    """Write the tables to `data/` of the run's folder for the block; an `InputError` before the first stage undoes it.

    Other data in a folder is an `InputError`, unless `replace`. Messages of the block about the files name the data.
    """
    folder = Path(settings.output_dir)
    if not tables:
        yield
        return
    is_new = not (folder / SETTINGS_FILE).exists()
    replaced = _write(tables, settings, folder, replace=replace)
    try:
        yield
    except InputError as error:
        if is_new and not any((folder / name).exists() for name in ("read", "read.partial")):
            _remove(folder)
        elif replaced is not None and (folder / "read").exists():  # the run restored its stages too
            _put_back(folder, replaced)
        raise _about_data(error, tables, folder) from None


def _write(tables: Tables, settings: Settings, folder: Path, *, replace: bool) -> Path | None:
    """Write the data, and the settings of a new folder; returns where other data was moved to."""
    make_output_folder(folder, SETTINGS_FILE)
    with disk_errors_named(folder), run_lock(folder):
        _write_temporary(tables, folder / _TEMPORARY)
        if not (folder / SETTINGS_FILE).exists():
            write_text(folder / SETTINGS_FILE, dump_yaml(settings))
        return _adopt(folder, replace=replace)


def _write_temporary(tables: Tables, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    for table in tables:
        with open(folder / table.file, "wb") as file:
            file.writelines(table.lines())
            file.flush()
            os.fsync(file.fileno())


def _adopt(folder: Path, *, replace: bool) -> Path | None:
    """Rename the new data, unless equal data is there; other data moves to `previous/` or raises `InputError`.

    Returns where other data was moved to.
    """
    new, old = folder / _TEMPORARY, folder / DATA
    if old.exists() and _digests(old) == _digests(new):
        shutil.rmtree(new)
        return None
    replaced = None
    if old.exists():
        if not replace:
            shutil.rmtree(new)
            hint = "start='read' redoes the run with the new data, another output keeps both; nothing was written"
            raise InputError("this run was made with other data", path=folder, hint=hint)
        replaced = previous_of(folder, DATA) / DATA
        replaced.parent.mkdir(exist_ok=True)
        remove_folder(replaced)
        os.replace(old, replaced)
    os.replace(new, old)
    return replaced


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: file_digest(path) for path in sorted(folder.iterdir())}


def _put_back(folder: Path, replaced: Path) -> None:
    """Restore the data that was replaced."""
    remove_folder(folder / DATA)
    os.replace(replaced, folder / DATA)
    with suppress(OSError):  # it holds the stages of an earlier redo
        replaced.parent.rmdir()


def _remove(folder: Path) -> None:
    """Remove what was written to a new folder."""
    remove_folder(folder / DATA)
    for name in (SETTINGS_FILE, ".lock"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it had other hidden files before
        folder.rmdir()


def _about_data(error: InputError, tables: Tables, folder: Path) -> InputError:
    """Return the error with the name of the data in place of the path of its file."""
    names = {str(folder / DATA / table.file): table.name for table in tables} | {str(folder / DATA): "data"}
    name = names.get(str(error.path))
    if name is None:
        return error
    return type(error)(error.message, path=name, row=error.row, key=error.key, hint=error.hint)
