"""Zip archives: their members, read like files of a folder."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, ClassVar

from endtask.corpus.files import documents_of, is_readable, version_of
from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, bare_suffix, read_failure
from endtask.io.digests import file_size
from endtask.io.input_files import ArchiveMember, InputFile

_ENCRYPTED = 1  # flag of a member
_DAMAGED = (NotImplementedError, ValueError, LookupError, OverflowError, struct.error)
"""What `zipfile` raises for some damaged archives, besides its own errors."""


@document_formats.register("zip")
class Zip(DocumentFormat):
    """The readable members of a zip archive, by name; archives in archives and hidden files are not read."""

    suffixes: ClassVar[tuple[str, ...]] = (".zip",)
    is_one_document = False

    def version(self, path: InputFile) -> str | None:
        """Return what the texts of all members depend on."""
        with _members(path) as (members, _):
            versions = {found for member in members if (found := version_of(member))}
        return ", ".join(sorted(versions)) or None

    def unread_members(self, path: InputFile) -> Sequence[str]:
        """Return the members of unknown formats."""
        try:
            with _members(path) as (_, unread):
                return unread
        except InputError:  # reading it reports the damage
            return ()

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the documents of the members, by name."""
        progress = options.progress or (lambda count: None)
        with _members(path) as (members, _):
            for member in members:
                yield from _documents_in(member, options)
                progress(member.stored_size)
        progress(max(0, file_size(Path(str(path))) - sum(member.stored_size for member in members)))


def _documents_in(member: ArchiveMember, options: DocumentOptions) -> Iterator[FileDocument]:
    for document in documents_of(member, replace(options, progress=None)):
        yield document._replace(key=f"/{member.inner}{document.key}")


@contextmanager
def _members(path: InputFile) -> Iterator[tuple[list[ArchiveMember], list[str]]]:
    """Open an archive; yields its readable members and the names of the others, by name."""
    assert isinstance(path, Path)  # archives in archives are not read
    try:
        archive = zipfile.ZipFile(path)
    except READ_FAILURES as error:
        raise read_failure(error, path) from None
    except _DAMAGED as error:
        raise read_failure(zipfile.BadZipFile(str(error)), path) from None
    with archive:
        infos = sorted((info for info in archive.infolist() if not _is_hidden(info)), key=lambda info: info.filename)
        members = [_member(path, archive, info) for info in infos]
        readable = [member for member in members if bare_suffix(member) not in Zip.suffixes and is_readable(member)]
        names = {member.inner for member in readable}
        yield readable, [member.inner for member in members if member.inner not in names]


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> ArchiveMember:
    return ArchiveMember(path, info.filename, info.file_size, info.compress_size, partial(_open, archive, info))


def _is_hidden(info: zipfile.ZipInfo) -> bool:
    parts = info.filename.split("/")
    return not info.filename or info.is_dir() or parts[0] == "__MACOSX" or any(part.startswith(".") for part in parts)


def _open(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Open a member; raises an error of `READ_FAILURES` where this is not possible."""
    if info.flag_bits & _ENCRYPTED:
        raise zipfile.BadZipFile("it needs a password")
    try:
        return archive.open(info)
    except _DAMAGED as error:
        raise zipfile.BadZipFile(str(error)) from None
