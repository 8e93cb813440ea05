"""What readers read: files and members of archives, with what to do about damage, guesses and progress."""

from __future__ import annotations

import importlib
import io
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.errors import InputError

ReadProgress = Callable[[int], None]
"""Called with the number of bytes of a file (as it is on disk) that were read since the last call."""
OnError = Callable[[InputError], None]
"""Called with the error of a row, a document or the rest of a file; raises it, or returns to read on."""
Note = Callable[[str], None]
"""Called with a sentence for the user about a guess."""


@dataclass(frozen=True)
class ArchiveMember:
    """A file inside an archive; readers open it like a file on disk. `stored_size` is its size in the archive."""

    archive: Path
    inner: str
    size: int
    stored_size: int
    opener: Callable[[], Any] = field(compare=False)

    @property
    def name(self) -> str:
        """The file name without folders."""
        return PurePosixPath(self.inner).name

    @property
    def suffix(self) -> str:
        """The last suffix of the name."""
        return PurePosixPath(self.inner).suffix

    def __str__(self) -> str:
        return f"{self.archive}/{self.inner}"


InputFile = Path | ArchiveMember


_OPEN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""What `<(command)` of a shell and redirections are called; named pipes may never have a writer."""


def open_file(path: Path) -> io.BufferedReader:
    """Open a file of the user for reading; raises `InputError` for folders, devices and pipes, which may never end.

    >>> open_file(Path("/dev/zero"))
    Traceback (most recent call last):
    endtask.errors.InputError: /dev/zero: is a device, not a file
    """
    try:
        _check_kind(path, path.stat().st_mode)
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except PermissionError:
        raise InputError("may not be read by this user", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from None
    except ValueError as error:  # a NUL, or half of a character
        raise InputError(f"cannot be the name of a file: {error}", path=ascii(str(path))) from None


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and str(path).startswith(_OPEN_PIPES)):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    raise InputError(f"is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file", path=path)


class Unskippable(InputError):
    """A library is missing or a setting is wrong: an error that must not be skipped with what cannot be read."""


def stop(error: InputError) -> None:
    """Raise the error: the default `OnError`."""
    raise error


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read.

    With `note` readers may guess encodings, and report each guess; without it text is UTF-8, or UTF-16 with a mark.
    """

    progress: ReadProgress | None = None
    on_error: OnError = stop
    note: Note | None = None


def import_extra(module: str, extra: str, file: object, *, purpose: str) -> Any:
    """Import a module of an optional library; raises `Unskippable` with the line that installs it.

    >>> import_extra("no_such", "pdf", "a.pdf", purpose="reading PDF")
    Traceback (most recent call last):
    endtask.io.input_files.Unskippable: a.pdf: reading PDF needs the package no_such (pip install 'endtask[pdf]')
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        message = f"{purpose} needs the package {package}"
        raise Unskippable(message, path=file, hint=f"pip install 'endtask[{extra}]'") from None
