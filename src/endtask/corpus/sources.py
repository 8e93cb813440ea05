"""Resolve a path as the user wrote it (file, folder, glob, address, `hf:NAME`, `docstrings`) to sources with files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from endtask.config import SourceSettings
from endtask.corpus.cloud import RemoteFile, list_files, local_copy, open_copy
from endtask.corpus.files import format_of, is_one_document, is_readable, known_formats, opens_file, unread_members
from endtask.errors import InputError, a_few, nearest
from endtask.io.addresses import check_no_credentials, is_address, redacted
from endtask.io.compression import without_compression
from endtask.io.digests import file_digest, file_size

DOCSTRINGS = "docstrings"
HUB_PREFIX = "hf:"

_NAMED = re.compile(r"([\w.-]+)=(.+)")
# `-00`, `-00001-of-00005`, and the hash that may follow in file names of the hub.
_SHARD = re.compile(r"-\d+(-of-\d+)?(-[0-9a-f]{16})?$")
_SHOWN = 5


@dataclass(frozen=True)
class SourceFile:
    """One file of a source; `label` names it inside the source, independent of where the folder is.

    The file at an address is `remote`, and `path` that of its local copy, which is made when the file is read.
    """

    path: Path
    label: str
    remote: RemoteFile | None = None

    @property
    def name(self) -> str:
        """The path or address, for messages."""
        return str(self.path) if self.remote is None else redacted(self.remote.address)

    def size(self) -> int:
        """Return the bytes of the file as it is stored."""
        if self.remote is None:
            return file_size(self.path)
        return file_size(local_copy(self.remote)) if self.remote.size is None else self.remote.size

    def digest(self) -> str:
        """Return a hash of the content; of a remote file the hash of its version, which needs no copy."""
        if self.remote is None:
            return file_digest(self.path)
        return self.remote.key if self.remote.has_version else file_digest(local_copy(self.remote))

    @contextmanager
    def open_copy(self) -> Iterator[Path]:
        """Yield the path of the file or of its local copy."""
        with nullcontext(self.path) if self.remote is None else open_copy(self.remote) as path:
            yield path


@dataclass(frozen=True)
class FoundFiles:
    """The readable files of a path sorted by label, and the labels of those that are not read.

    `folder` is the name of the folder or bucket searched, None where the path names a file.
    """

    folder: str | None
    files: tuple[SourceFile, ...]
    unread: tuple[str, ...] = ()


def has_matches(pattern: str) -> bool:
    """Return whether the text is a glob that matches something."""
    return glob.has_magic(pattern) and next(glob.iglob(pattern, recursive=True), None) is not None


def find_files(text: str) -> FoundFiles:
    """Return the readable files of a path as the user wrote it; raises an InputError if there is none."""
    if not text.strip():
        raise InputError("the path of a source is empty", key="corpus.sources")
    if is_address(text):
        return _files_at(text)
    path = Path(text).expanduser()
    if path.is_dir():
        return _readable(text, path, _files_below(path))
    if path.exists():
        return _single_file(path)
    if glob.has_magic(text):
        return _readable(text, _glob_base(path), _files_matching(path))
    raise _missing(path)


def _single_file(path: Path) -> FoundFiles:
    if format_of(path) is None:
        raise InputError("unknown kind of file", path=path, hint=known_formats())
    return FoundFiles(None, (SourceFile(path, path.name),), tuple(unread_members(path)))


def _readable(text: str, base: Path, paths: Iterable[Path]) -> FoundFiles:
    found = sorted(paths, key=lambda path: path.as_posix())
    files = tuple(SourceFile(path, path.relative_to(base).as_posix()) for path in found if is_readable(path))
    if not files:
        reason = "no file of a known kind" if found else "no file matches" if glob.has_magic(text) else "no file"
        raise InputError(reason, path=text, hint=known_formats() if found else None)
    readable = {file.path for file in files}
    unread = [path.relative_to(base).as_posix() for path in found if path not in readable]
    return FoundFiles(base.resolve().name, files, (*unread, *_unread_in(files)))


def _unread_in(files: Iterable[SourceFile]) -> Iterator[str]:
    """Yield the members of archives that are not read."""
    for file in files:
        yield from (f"{file.label}/{name}" for name in unread_members(file.path))


def _files_at(address: str) -> FoundFiles:
    """Return the readable files at an address; copies only those whose content says whether they are read."""
    remote = list_files(address)
    files, unread = [], []
    for file in remote:
        is_known = format_of(file.copy) is not None
        if is_known and opens_file(file.copy):
            local_copy(file)
        if is_known and (len(remote) == 1 or is_readable(file.copy)):
            files.append(SourceFile(file.copy, file.label, file))
        else:
            unread.append(file.label)
    if not files:
        reason = "no file of a known kind" if remote else "no file"
        raise InputError(reason, path=redacted(address), hint=known_formats())
    is_file = len(remote) == 1 and remote[0].address.rstrip("/") == address.rstrip("/")
    name = re.sub(r"/?[^/]*[*?\[].*$", "", address).rstrip("/").rpartition("/")[2]
    return FoundFiles(None if is_file else name, tuple(files), (*unread, *_unread_in(files)))


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


def _raise_input_error(error: OSError) -> None:
    raise InputError(f"cannot be read: {error.strerror or error}", path=error.filename)


def _missing(path: Path) -> InputError:
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, names)
    return InputError("no such file or folder", path=path, hint=f"did you mean {close!r}?" if close else None)


@dataclass(frozen=True)
class Source:
    """A named part of a corpus; `path` is as the user wrote it, `unread` are labels of files of unknown kinds.

    With `skip_errors` what cannot be read is skipped; else it stops the reader.
    """

    name: str
    path: str
    name_given: bool = False
    files: tuple[SourceFile, ...] = ()
    text: str | None = None
    license: str | None = None
    unread: tuple[str, ...] = ()
    skip_errors: bool = False

    @property
    def unread_line(self) -> str | None:
        """A sentence about the files that are not read; None without any."""
        if not self.unread:
            return None
        count = "1 file" if len(self.unread) == 1 else f"{len(self.unread):,} files"
        return f"{count} of {self.path} not read, of no known format: {a_few(self.unread, _SHOWN)}"


def parse_source(text: str) -> SourceSettings:
    """Parse `path` or `name=path`; an existing path with `=` in it is a path.

    >>> parse_source("wiki=data/*.jsonl")
    SourceSettings(path='data/*.jsonl', name='wiki', text=None, license=None)
    """
    named = _NAMED.fullmatch(text)
    if named is None or Path(text).exists() or has_matches(text):
        return _source_settings(None, text)
    return _source_settings(named[1], named[2])


def _source_settings(name: str | None, path: str) -> SourceSettings:
    try:
        return SourceSettings(name=name, path=check_no_credentials(path))
    except ValueError as error:
        raise InputError(str(error), key="corpus.sources") from None


def find_sources(
    entries: Sequence[SourceSettings], *, key: str = "corpus.sources", skip_errors: bool = False
) -> tuple[Source, ...]:
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
    sources = (replace(source, skip_errors=skip_errors) for source in found.values())
    return _with_distinct_names(sources, set(given))


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
    for file in found.files:
        if (resolved := file.path.resolve()) not in claimed:
            claimed.add(resolved)
            in_folder = found.folder if is_one_document(file.path) else None
            groups.setdefault(blank.name or in_folder or derived_name(file.path), []).append(file)
    if not groups:
        raise InputError("all its files are named by an earlier source", path=blank.path)
    unread = found.unread
    for name, files in groups.items():
        yield replace(blank, name=name, files=tuple(files), unread=unread)
        unread = ()  # listed once for the entry


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
    files = [replace(file, label=_distinct(file.label, used, "~")) for file in second.files]
    return replace(first, files=(*first.files, *files), unread=(*first.unread, *second.unread))


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
