"""Files that appear whole or not at all: write aside, flush to disk, rename."""

from __future__ import annotations

import errno
import json
import os
import re
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


def link_or_copy(file: Path, place: Path) -> None:
    """Make a hard link, or a copy where the disk has none; only for files that are never written to again."""
    try:
        os.link(file, place)
    except OSError:  # another disk, or one without hard links
        with whole_file(place) as aside:
            shutil.copyfile(file, aside)


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
_RUST = re.compile(r"\(os error (\d+)\)")
_NUMPY = re.compile(r"\d+ requested and \d+ written")


def disk_trouble(error: BaseException) -> str | None:
    """What the system said when a write failed, in whatever way a library wraps it; None for other errors.

    >>> disk_trouble(OSError(28, "No space left on device", "runs/a/manifest.json"))
    'runs/a/manifest.json: No space left on device'
    >>> disk_trouble(RuntimeError("I/O error: No space left on device (os error 28)"))
    'No space left on device'
    >>> disk_trouble(ValueError("something else"))
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _RUST.search(str(error))):
        number = int(found[1])
    if number is None and isinstance(error, OSError) and _NUMPY.search(str(error)):
        number = errno.ENOSPC  # NumPy counts what it wrote and forgets why it stopped
    if number is None or number not in _DISK:
        return None
    place = getattr(error, "filename", None)
    return f"{place}: {os.strerror(number)}" if place else os.strerror(number)
