"""Files that appear whole or not at all: write aside, flush to disk, rename."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path to write to; rename it to `path` when the block ends well, delete it otherwise."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        if error.errno is not None and str(error.filename or aside) == str(aside):
            error.filename = str(path)  # the name a person knows
        raise
    finally:
        aside.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes were writing aside; call it only where no other process writes."""
    for pattern in (".*.tmp", ".tmp*"):  # ours, and those of safetensors, which writes aside once more
        for aside in list(folder.rglob(pattern)):
            if aside.is_dir() and not aside.is_symlink():
                shutil.rmtree(aside)
            else:
                aside.unlink(missing_ok=True)  # what lay in a folder is gone with it


def remove_folder(folder: Path) -> None:
    """Delete a folder so that a killed process leaves the whole of it, or what is told to be a leftover."""
    aside = folder.with_name(f".{folder.name}.tmp")
    if aside.exists():
        shutil.rmtree(aside)
    if folder.exists():
        os.replace(folder, aside)
        shutil.rmtree(aside)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file whole or not at all; NaN is refused, since other readers would choke on it."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def replace_folder(aside: Path, folder: Path) -> None:
    """Move a finished folder into place; a reader never sees half of it."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists():
        shutil.rmtree(old)
    if folder.exists():
        os.replace(folder, old)
    os.replace(aside, folder)
    if old.exists():
        shutil.rmtree(old)
