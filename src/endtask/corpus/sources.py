"""Resolve what the user wrote (file, folder, glob, `hf:NAME`, `docstrings`) to named sources and their files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from endtask.config import SourceSettings
from endtask.errors import InputError, nearest
from endtask.io.compression import bare_suffix, without_compression
from endtask.io.tables import ROW_SUFFIXES

DOCSTRINGS = "docstrings"
HUB_PREFIX = "hf:"
TEXT_SUFFIXES = (".txt", ".md", ".rst")

_NAMED = re.compile(r"([\w.-]+)=(.+)")
# `-00`, `-00001-of-00005`, and the hash that may follow in file names of the hub.
_SHARD = re.compile(r"-\d+(-of-\d+)?(-[0-9a-f]{16})?$")


@dataclass(frozen=True)
class FoundFiles:
    """Readable files sorted by path; `base` is the file itself or the folder searched."""

    base: Path
    paths: tuple[Path, ...]
    skipped: int = 0

    def label(self, path: Path) -> str:
        """Return the file's path relative to `base`."""
        return path.name if path == self.base else path.relative_to(self.base).as_posix()


def is_text_file(path: Path) -> bool:
    """Return whether the file is a text file, which is one document."""
    return bare_suffix(path) in TEXT_SUFFIXES


def has_matches(pattern: str) -> bool:
    """Return whether the text is a glob that matches something."""
    return glob.has_magic(pattern) and next(glob.iglob(pattern, recursive=True), None) is not None


def find_files(text: str) -> FoundFiles:
    """Return the readable files of a path as the user wrote it; raises an InputError if there is none."""
    if not text.strip():
        raise InputError("the path of a source is empty", key="corpus.sources")
    path = Path(text).expanduser()
    if path.is_dir():
        return _readable(text, path, _files_below(path))
    if path.exists():
        return _single_file(path)
    if glob.has_magic(text):
        return _readable(text, _glob_base(path), _files_matching(path))
    raise _missing(path)


def _single_file(path: Path) -> FoundFiles:
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
    """Yield all files except hidden ones and those in hidden folders such as `.git`."""
    for parent, folders, names in os.walk(folder, onerror=_raise_input_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(parent, name) for name in names if not name.startswith("."))
        yield from (path for path in paths if path.is_file())


def _files_matching(pattern: Path) -> Iterator[Path]:
    paths = (Path(name) for name in glob.iglob(str(pattern), recursive=True))
    return (path for path in paths if path.is_file())


def _glob_base(pattern: Path) -> Path:
    """Return the folder that a glob starts from.

    >>> _glob_base(Path("data/**/*.jsonl")).as_posix()
    'data'
    """
    while glob.has_magic(str(pattern)):
        pattern = pattern.parent
    return pattern


def _is_readable(path: Path) -> bool:
    return bare_suffix(path) in (*ROW_SUFFIXES, *TEXT_SUFFIXES)


def _known_kinds() -> str:
    return f"known: {', '.join((*ROW_SUFFIXES, *TEXT_SUFFIXES))}, or those .gz .zst .xz"


def _raise_input_error(error: OSError) -> None:
    raise InputError(f"cannot be read: {error.strerror or error}", path=error.filename)


def _missing(path: Path) -> InputError:
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, names)
    return InputError("no such file or folder", path=path, hint=f"did you mean {close!r}?" if close else None)


@dataclass(frozen=True)
class SourceFile:
    """One file of a source; `label` names it inside the source, independent of where the folder is."""

    path: Path
    label: str


@dataclass(frozen=True)
class Source:
    """A named part of a corpus; `path` is as the user wrote it, `skipped` counts files of unknown kinds."""

    name: str
    path: str
    name_given: bool = False
    files: tuple[SourceFile, ...] = ()
    text: str | None = None
    license: str | None = None
    skipped: int = 0


def parse_source(text: str) -> SourceSettings:
    """Parse `path` or `name=path`; an existing path with `=` in it is a path.

    >>> parse_source("wiki=data/*.jsonl")
    SourceSettings(path='data/*.jsonl', name='wiki', text=None, license=None)
    """
    named = _NAMED.fullmatch(text)
    if named is None or Path(text).exists() or has_matches(text):
        return SourceSettings(path=text)
    return SourceSettings(name=named[1], path=named[2])


def find_sources(entries: Sequence[SourceSettings], *, key: str = "corpus.sources") -> tuple[Source, ...]:
    """Find the files of every entry, which must exist, without reading them.

    Files with the same derived name form one source, wherever they are listed. A file belongs to the first entry that
    names it.
    """
    if not entries:
        raise InputError("no corpus given", key=key, hint="name a file, folder or glob")
    given = [entry.name for entry in entries if entry.name]
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two sources are named {twice!r}", key=key)
    found: dict[tuple[object, ...], Source] = {}
    claimed: set[Path] = set()
    for entry in entries:
        for source in _sources_of(entry, claimed):
            address = "" if source.files else source.path
            key_of_source = (source.name, source.name_given, source.text, source.license, address)
            earlier = found.get(key_of_source)
            found[key_of_source] = _merged(earlier, source) if earlier else source
    return _with_distinct_names(found.values(), set(given))


def _sources_of(entry: SourceSettings, claimed: set[Path]) -> Iterator[Source]:
    blank = Source(entry.name or "", entry.path, bool(entry.name), text=entry.text, license=entry.license)
    if entry.path == DOCSTRINGS:
        yield replace(blank, name=entry.name or DOCSTRINGS)
    elif entry.path.startswith(HUB_PREFIX):
        yield replace(blank, name=entry.name or _hub_name(entry.path))
    else:
        yield from _file_sources(blank, claimed)


def _file_sources(blank: Source, claimed: set[Path]) -> Iterator[Source]:
    found = find_files(blank.path)
    groups: dict[str, list[SourceFile]] = {}
    for path in found.paths:
        if (resolved := path.resolve()) not in claimed:
            claimed.add(resolved)
            in_folder = is_text_file(path) and path != found.base
            derived = found.base.resolve().name if in_folder else derived_name(path)
            groups.setdefault(blank.name or derived, []).append(SourceFile(path, found.label(path)))
    if not groups:
        raise InputError("all its files are named by an earlier source", path=blank.path)
    skipped = found.skipped
    for name, files in groups.items():
        yield replace(blank, name=name, files=tuple(files), skipped=skipped)
        skipped = 0  # counted once for the entry


def derived_name(path: Path) -> str:
    """Return a source name derived from a file name, without suffixes and shard number.

    >>> derived_name(Path("corpus/wikipedia_pages-00.jsonl.zst"))
    'wikipedia_pages'
    """
    stem = Path(without_compression(path.name)).stem
    return _SHARD.sub("", stem) or stem


def _hub_name(path: str) -> str:
    return path.removeprefix(HUB_PREFIX).partition(":")[0].rstrip("/").rpartition("/")[2] or "hub"


def _merged(first: Source, second: Source) -> Source:
    used = {file.label for file in first.files}
    files = [SourceFile(file.path, _distinct(file.label, used, "~")) for file in second.files]
    return replace(first, files=(*first.files, *files), skipped=first.skipped + second.skipped)


def _with_distinct_names(sources: Iterable[Source], given: set[str]) -> tuple[Source, ...]:
    """Number derived names that equal a given name or an earlier one."""
    used = set(given)
    return tuple(
        source if source.name_given else replace(source, name=_distinct(source.name, used, "-")) for source in sources
    )


def _distinct(name: str, used: set[str], separator: str) -> str:
    """Return the name, with the first free number if it is in use, and add it to `used`."""
    number, candidate = 1, name
    while candidate in used:
        number += 1
        candidate = f"{name}{separator}{number}"
    used.add(candidate)
    return candidate
