"""The readable files behind a path: one file, all below a folder, or those that a glob matches."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from endtask.errors import InputError, nearest
from endtask.io.compression import bare_suffix
from endtask.io.tables import ROW_SUFFIXES

TEXT_SUFFIXES = (".txt", ".md", ".rst")


@dataclass(frozen=True)
class FoundFiles:
    """Readable files in order of their paths; `base` is the file itself or the folder searched."""

    base: Path
    paths: tuple[Path, ...]
    skipped: int = 0

    def label(self, path: Path) -> str:
        """The file's name as seen from `base`."""
        return path.name if path == self.base else path.relative_to(self.base).as_posix()


def is_text_file(path: Path) -> bool:
    """Whether the whole file is one document."""
    return bare_suffix(path) in TEXT_SUFFIXES


def has_matches(pattern: str) -> bool:
    """Whether the text is a glob that matches something."""
    return glob.has_magic(pattern) and next(glob.iglob(pattern, recursive=True), None) is not None


def find_files(text: str) -> FoundFiles:
    """The files behind a path as the user wrote it; none is an error."""
    if not text.strip():
        raise InputError("the path of a source is empty", key="corpus.sources")
    path = Path(text).expanduser()
    if path.is_dir():
        return _readable(text, path, _files_below(path))
    if path.exists():
        return _one_file(path)
    if glob.has_magic(text):
        return _readable(text, _fixed_part(path), _files_matching(path))
    raise _missing(path)


def _one_file(path: Path) -> FoundFiles:
    if not _is_readable(path):
        raise InputError("unknown kind of file", path=path, hint=_known_kinds())
    return FoundFiles(path, (path,))


def _readable(text: str, base: Path, paths: Iterable[Path]) -> FoundFiles:
    found = sorted(paths, key=lambda path: path.as_posix())
    readable = tuple(path for path in found if _is_readable(path))
    if not readable:
        reason = "no file of a known kind" if found else "no file matches" if glob.has_magic(text) else "no file"
        raise InputError(reason, path=text, hint=_known_kinds() if found else None)
    return FoundFiles(base, readable, len(found) - len(readable))


def _files_below(folder: Path) -> Iterator[Path]:
    """All files but hidden ones and those in hidden folders (`.git`, editors' leavings)."""
    for place, folders, names in os.walk(folder, onerror=_check):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        yield from (path for path in paths if path.is_file())


def _files_matching(pattern: Path) -> Iterator[Path]:
    paths = (Path(name) for name in glob.iglob(str(pattern), recursive=True))
    return (path for path in paths if path.is_file())


def _fixed_part(pattern: Path) -> Path:
    """The folder that a glob starts from.

    >>> _fixed_part(Path("data/**/*.jsonl")).as_posix()
    'data'
    """
    while glob.has_magic(str(pattern)):
        pattern = pattern.parent
    return pattern


def _is_readable(path: Path) -> bool:
    return bare_suffix(path) in (*ROW_SUFFIXES, *TEXT_SUFFIXES)


def _known_kinds() -> str:
    return f"known: {', '.join((*ROW_SUFFIXES, *TEXT_SUFFIXES))}, or those .gz .zst .xz"


def _check(error: OSError) -> None:
    raise InputError(f"cannot be read: {error.strerror or error}", path=error.filename)


def _missing(path: Path) -> InputError:
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, beside)
    return InputError("no such file or folder", path=path, hint=f"did you mean {close!r}?" if close else None)
