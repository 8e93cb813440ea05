"""Lock output folders for one process, and end worker processes with their parent."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from endtask.errors import InputError


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the operating system releases it when the process ends."""
    lock = FileLock(folder / ".lock")
    note = folder / ".lock-holder"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = note.read_text(encoding="utf-8").strip() if note.exists() else "unknown"
        raise InputError("another process works on this run", path=folder, hint=f"process {holder}") from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=folder) from None
    try:
        note.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the folder's lock.

    The lock is tried only where a process left its number next to it: trying it might get in the way of a run that
    starts at the same moment. A killed process leaves its number but not the lock.
    """
    if not (folder / ".lock-holder").exists():
        return False
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


_LONGEST_NAME = 255  # bytes, on nearly all disks


def make_output_folder(folder: Path, own_file: str) -> None:
    """Create an output folder. Raise `InputError` if it has files but not `own_file`, which our folders have."""
    try:
        if any(len(os.fsencode(name)) > _LONGEST_NAME for name in folder.parts):  # before folders above it are made
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=folder, key="output_dir") from None
    if names and own_file not in names:
        raise InputError(
            f"the folder has other files ({names[0]}); nothing was written",
            path=folder,
            key="output_dir",
            hint="choose another --output",
        )


_POLL_SECONDS = 0.5


def exit_with_parent(parent: int) -> None:
    """Start a thread that exits this process when its parent is no longer `parent`; an orphan would keep its locks."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
