"""The file format of a bundle: a zstd-compressed tar of plain files, written and read as a stream.

Its first file, the header, lists the runs and the size and hash of every other file.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, open_bytes, read_failure, zstd
from endtask.io.parsing import parse_json

SUFFIX = ".zst"
_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
# Measured on 46 MB of tokens and on 127 MB of text: higher levels take many times as long for 3 to 4% less.
_LEVEL = 9
_WINDOW_LOG = 27  # matches repeated content within 128 MB

HEADER = "bundle.json"
FORMAT = 1
MOST_FILES = 100_000
ROOT = "."
"""The path of the run in a bundle with a single run."""

_LONGEST_PATH, _LONGEST_NAME = 1024, 255  # in bytes, the limits of Linux and macOS
_LARGEST_FILE = (1 << 63) - 1
_LONGEST_PRINTED = 40


class ArchiveWriter:
    """Appends files to an archive. The same files in the same order give the same bytes."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: _LEVEL,
            zstd.CompressionParameter.window_log: _WINDOW_LOG,
            zstd.CompressionParameter.enable_long_distance_matching: 1,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        self._file, self._name = file, name
        self._stream = zstd.ZstdFile(file, "wb", options=options)

    def add(self, path: str, size: int, content: IO[bytes]) -> str:
        """Add `size` bytes under a path. Return their SHA-256."""
        self._stream.write(self._member_header(path, size))
        digest = hashlib.sha256()
        left = size
        while left and (chunk := content.read(min(left, _CHUNK))):
            digest.update(chunk)
            self._stream.write(chunk)
            left -= len(chunk)
        self._stream.write(bytes(left + -size % _BLOCK))
        return digest.hexdigest()

    def bytes_so_far(self) -> int:
        """Return the compressed size so far."""
        self._stream.flush()
        return self._file.tell()

    def finish(self) -> None:
        """Write the end of the archive."""
        self._stream.write(bytes(2 * _BLOCK))
        self._stream.close()

    def _member_header(self, path: str, size: int) -> bytes:
        member = tarfile.TarInfo(path)
        member.size = size
        try:
            return member.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
        except ValueError as error:
            raise InputError(f"{path!r} is not a valid name in a bundle: {error}", path=self._name) from None


class ArchiveReader:
    """Reads the files in order. Raises `InputError` for anything but complete plain files."""

    def __init__(self, stream: IO[bytes], file: Path) -> None:
        self._stream, self._file = stream, file

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield each file's path and size; the caller reads `content` before the next file."""
        while any(block := self._read(_BLOCK)):
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
            except (tarfile.TarError, ValueError):
                raise self.damaged("not a bundle, or a damaged one") from None
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
                raise self.damaged(f"contains something else than plain files ({member.name!r})")
            yield member.name, member.size
        self._check_end()

    def content(self, size: int) -> Iterator[bytes]:
        """Yield the content of the current file in chunks."""
        left = size
        while left:
            chunk = self._read(min(left, _CHUNK))
            yield chunk
            left -= len(chunk)
        self._read(-size % _BLOCK)

    def damaged(self, message: str) -> InputError:
        """Return the error for a damaged file."""
        return InputError(message, path=self._file, hint="copy it again, or make it again; nothing was unpacked")

    def _read(self, size: int) -> bytes:
        content = self._read_up_to(size)
        if len(content) < size:
            raise self.damaged("the file is cut off")
        return content

    def _check_end(self) -> None:
        """Raise `InputError` if anything but zeros follows the archive's last file."""
        while block := self._read_up_to(_CHUNK):
            if any(block):
                raise self.damaged("something follows the end of the bundle")

    def _read_up_to(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except READ_FAILURES as error:
            if isinstance(error, zstd.ZstdError):
                raise self.damaged("not a bundle, or a damaged one") from None
            raise read_failure(error, self._file) from None


@contextmanager
def open_archive(file: Path) -> Iterator[ArchiveReader]:
    """Open a bundle for reading."""
    if file.suffix.lower() != SUFFIX:
        raise InputError("not a bundle", path=file, hint=f"its name ends in .tar{SUFFIX}; endtask bundle makes one")
    with open_bytes(file, window_log=_WINDOW_LOG) as stream:
        yield ArchiveReader(stream, file)


def content_of(source: Path | bytes) -> IO[bytes]:
    """Open a file or bytes for reading."""
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


@dataclass(frozen=True)
class Entry:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Header:
    """The header of a bundle. A bundle stores equal files once, under the first of their paths.

    `runs` are the folders of the runs, relative to the unpacked folder.
    """

    version: str
    kind: str
    runs: tuple[str, ...]
    files: dict[str, Entry]

    @property
    def members(self) -> dict[str, list[str]]:
        """The path of each stored file, with the other paths that have the same bytes."""
        paths: dict[Entry, list[str]] = {}
        for path in sorted(self.files):
            paths.setdefault(self.files[path], []).append(path)
        return {first: duplicates for first, *duplicates in paths.values()}

    def to_bytes(self) -> bytes:
        """Return the header as JSON; it has no date, so that the same content gives the same bundle."""
        files = {path: [entry.bytes, entry.sha256] for path, entry in sorted(self.files.items())}
        tree = {"format": FORMAT, "endtask": self.version, "kind": self.kind, "runs": self.runs, "files": files}
        return (json.dumps(tree, indent=1, ensure_ascii=False) + "\n").encode()


def parse_header(content: bytes, bundle: str) -> Header:
    """Parse a header and check that its paths are safe to write to; `bundle` is the path in error messages."""
    try:
        tree = parse_json(content)
        if tree["format"] != FORMAT:
            raise _other_format(tree, bundle)
        header = Header(
            version=_printable(tree["endtask"]),
            kind=_printable(tree["kind"]),
            runs=_runs(tree["runs"]),
            files={str(path): _entry(*entry) for path, entry in tree["files"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("not a bundle, or a damaged one: its list of files cannot be read", path=bundle) from None
    if len(header.files) > MOST_FILES:
        raise InputError(f"names {len(header.files):,} files, more than the {MOST_FILES:,} of a bundle", path=bundle)
    for path in (*header.files, *(run for run in header.runs if run != ROOT)):
        if not is_safe(path):
            message = f"names a file outside of its folder or one that cannot be written, {path[:_LONGEST_PATH]!r}"
            raise InputError(f"{message}; nothing was unpacked", path=bundle)
    _check_no_file_below_file(header.files, bundle)
    return header


def is_safe(path: str) -> bool:
    r"""Return whether a path stays below the folder of a bundle and can be written and printed, on any system.

    >>> is_safe("pack/tokens.bin"), is_safe("../tokens.bin"), is_safe("/etc/passwd"), is_safe("C:\\tokens.bin")
    (True, False, False, False)
    """
    # Printable text has no NUL, no line end, and no character that UTF-8 cannot encode.
    if not path.isprintable() or "\\" in path or len(path.encode()) > _LONGEST_PATH:
        return False
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME for part in parts)
    return plain and parts[0] != HEADER and not PureWindowsPath(path).drive


def _runs(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError
    return tuple(names)


def _printable(value: Any) -> str:
    """Return a value as short text without terminal control characters."""
    text = str(value)[:_LONGEST_PRINTED]
    return text if text.isprintable() else ascii(text)


def _entry(size: Any, sha256: Any) -> Entry:
    if type(size) is not int or not 0 <= size <= _LARGEST_FILE or len(bytes.fromhex(sha256)) != 32:
        raise ValueError
    return Entry(size, sha256)


def _check_no_file_below_file(files: Mapping[str, Entry], bundle: str) -> None:
    for path in files:
        parents = [parent.as_posix() for parent in PurePosixPath(path).parents]
        file = next((parent for parent in parents if parent in files), None)
        if file is not None:
            raise InputError(f"damaged: {file!r} is both a file and a folder", path=bundle)


def _other_format(tree: Mapping[str, Any], bundle: str) -> InputError:
    version = _printable(tree.get("endtask", "of another version"))
    made_by = f"made by endtask {version} in format {_printable(tree['format'])}"
    return InputError(f"{made_by}; this version reads format {FORMAT} only", path=bundle, hint="upgrade endtask here")
