"""Atomic files and folders: write to a temporary name, flush to disk, rename. Also hard links and disk errors."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from endtask.errors import InputError


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` when the block succeeds, delete it otherwise."""
    path = Path(path)
    _check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None and str(error.filename or temporary) == str(temporary):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; rename it to `path` when the block succeeds, delete it otherwise.

    Replaces an existing folder. What killed processes left of their attempts is deleted first.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers_of(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _delete(temporary)  # of a killed process with this number, as in containers
    try:
        temporary.mkdir()
        yield temporary
        replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_replaceable(path: Path) -> None:
    """Raise `InputError` for a device or a pipe, which a rename would replace by a file, for all programs."""
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise InputError("a device or a pipe, which is never replaced", path=path, hint="name a file")


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of killed processes; no other process may write to the folder."""
    for pattern in (".*.tmp", ".tmp*"):  # of this module and of safetensors
        for temporary in list(folder.rglob(pattern)):
            _delete(temporary)  # may be deleted already, with its folder


def _delete(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers_of(path: Path) -> None:
    """Delete what killed processes left that were writing this file or folder; that of living ones stays."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        process = temporary.name.removesuffix(".tmp").rpartition(".")[2]
        if process.isdecimal() and not _is_alive(int(process)):
            with suppress(OSError):  # of another user
                _delete(temporary)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user
        return True
    return True


def remove_folder(folder: Path) -> None:
    """Delete a folder atomically; a killed process leaves the whole folder, or a leftover for `remove_leftovers`."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    if temporary.exists():
        shutil.rmtree(temporary)
    if folder.exists():
        os.replace(folder, temporary)
        shutil.rmtree(temporary)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file atomically. Raise `ValueError` for NaN, which is not valid JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def replace_folder(temporary: Path, folder: Path) -> None:
    """Rename a finished folder, replacing an existing one; a reader never sees an incomplete folder."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists():
        shutil.rmtree(old)
    if folder.exists():
        os.replace(folder, old)
    os.replace(temporary, folder)
    if old.exists():
        shutil.rmtree(old)


def link_or_copy(file: Path, target: Path) -> None:
    """Create a hard link, or a copy where links are not possible. Only for files that are never modified."""
    try:
        os.link(file, target)
    except OSError:  # another disk, or one without hard links
        with atomic_file(target) as temporary:
            shutil.copyfile(file, temporary)


def system_error(error: BaseException) -> str | None:
    """Return the line for an error of the system that is no bug: a path, the disk, memory; None for other errors.

    >>> system_error(FileNotFoundError(2, "No such file or directory", "runs/a/pack"))
    'runs/a/pack: No such file or directory (was it moved or removed while endtask was at work?)'
    >>> system_error(RuntimeError("Symlink loop from '/tmp/a'"))
    "Symlink loop from '/tmp/a'"
    >>> system_error(RuntimeError("No such file or directory (os error 2)"))
    'No such file or directory (os error 2) (was it moved or removed while endtask was at work?)'
    >>> system_error(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    'the memory of this machine is not enough'
    >>> system_error(KeyError("something else"))
    """
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        gone = _GONE if isinstance(error, FileNotFoundError) else ""
        return f"{os.fsdecode(error.filename)}: {error.strerror or os.strerror(error.errno)}{gone}"
    if isinstance(error, FileNotFoundError) or _MISSING.search(str(error)):  # of libraries, which name no file
        return f"{error}{_GONE}"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return "the memory of this machine is not enough"
    is_path = isinstance(error, UnicodeEncodeError | ValueError | RuntimeError) and _PATH.search(str(error))
    return str(error) if is_path else disk_error(error)


_GONE = " (was it moved or removed while endtask was at work?)"
_MISSING = re.compile(rf"\(os error {errno.ENOENT}\)")
_PATH = re.compile(r"embedded null (byte|character)|surrogates not allowed|^Symlink loop|determine home directory")
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
_RUST = re.compile(r"\(os error (\d+)\)")
_NUMPY = re.compile(r"\d+ requested and \d+ written")


@contextmanager
def disk_errors_named(folder: Path, hint: str | None = None) -> Iterator[None]:
    """Raise a write that failed in the block as an `InputError` about the folder."""
    try:
        yield
    except Exception as error:
        message = disk_error(error)
        if message is None:
            raise
        raise InputError(message, path=folder, hint=hint) from None


def disk_error(error: BaseException) -> str | None:
    """Return the system's message for a failed write, also if a library wrapped it; None for other errors.

    >>> disk_error(OSError(28, "No space left on device", "runs/a/manifest.json"))
    'runs/a/manifest.json: No space left on device'
    >>> disk_error(RuntimeError("I/O error: No space left on device (os error 28)"))
    'No space left on device'
    >>> disk_error(ValueError("something else"))
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := _RUST.search(str(error))):
        number = int(match[1])
    if number is None and isinstance(error, OSError) and _NUMPY.search(str(error)):
        number = errno.ENOSPC  # NumPy reports the count written, not the reason
    if number is None or number not in _DISK:
        return None
    path = getattr(error, "filename", None)
    return f"{path}: {os.strerror(number)}" if path else os.strerror(number)
