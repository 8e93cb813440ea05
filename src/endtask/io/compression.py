"""Plain, gzip, zstd, xz and bzip2 files as byte streams; a truncated file raises an error, never gives a short read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Protocol

from endtask.errors import InputError
from endtask.io.atomic import atomic_file, remove_leftovers_of
from endtask.io.input_files import ArchiveMember, InputFile, ReadProgress, open_file
from endtask.io.limits import RATIO

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

COMPRESSIONS = (".gz", ".zst", ".xz", ".bz2")


class _DamagedBzip2(Exception):
    """A bzip2 stream cannot be decompressed; `bz2` raises `OSError`, as a failing disk does."""


class _Expands(Exception):
    """A file becomes implausibly large when it is decompressed: it was made to fill memory or disk."""


READ_FAILURES = (
    _DamagedBzip2,
    _Expands,
    EOFError,
    OSError,
    zstd.ZstdError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
)

_CHUNK = 1 << 20
_FREE = 1 << 28  # bytes that any file may decompress to
_BZIP2_STEP = 1 << 16  # bytes; on damage what a step has decompressed is lost
_LARGEST_WINDOW_LOG = 31  # what `zstd --long=31` writes; the library's default stops at 27


class _Stream(io.RawIOBase):
    """The decompressed bytes of a file; calls `progress` as the file is read."""

    def __init__(self, file: IO[bytes], stream: Any, progress: ReadProgress | None) -> None:
        self._file, self._stream, self._progress = file, stream, progress
        self._position = self._read = 0
        self._ratio = RATIO.value

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Only what is decompressed so far: on damage, a longer read would lose the rows before it.
        content = self._stream.read1(len(buffer))
        buffer[: len(content)] = content
        position = self._file.tell()
        self._read += len(content)
        if self._read > _FREE and self._read > self._ratio * position:
            raise _Expands
        if self._progress and position > self._position:
            self._progress(position - self._position)
        self._position = position
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()


def without_compression(name: str) -> str:
    """Return a file name without the suffix of its compression.

    >>> without_compression("train.jsonl.zst")
    'train.jsonl'
    """
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in COMPRESSIONS else name


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Bzip2Stream:
    """The decompressed bytes of a bzip2 file of any number of streams.

    `bz2.BZ2File` takes a damaged stream after the first for the end of the file.
    """

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self._decompressor = bz2.BZ2Decompressor()
        self._is_between_streams = False

    def read1(self, size: int) -> bytes:
        """Return some bytes, at most `size`; none at the end of the file."""
        while True:
            if self._decompressor.eof:
                content = self._decompressor.unused_data
                self._decompressor, self._is_between_streams = bz2.BZ2Decompressor(), True
            else:
                content = b""
            if not content and self._decompressor.needs_input:
                content = self._file.read(_CHUNK)
                if not content and self._is_between_streams:
                    return b""
                if not content:
                    raise EOFError
            self._is_between_streams = self._is_between_streams and not content
            try:
                found = self._decompressor.decompress(content, min(size, _BZIP2_STEP))
            except OSError as error:
                raise _DamagedBzip2(str(error)) from None
            if found:
                return found

    def close(self) -> None:
        """Do nothing: the file is closed by its owner."""


def bare_suffix(path: InputFile) -> str:
    """Return the suffix of a file without that of its compression.

    >>> bare_suffix(Path("train.jsonl.zst"))
    '.jsonl'
    """
    return Path(without_compression(path.name)).suffix.lower()


def open_bytes(
    path: InputFile,
    progress: ReadProgress | None = None,
    *,
    decompress: bool = True,
    window_log: int = _LARGEST_WINDOW_LOG,
) -> io.BufferedReader:
    """Open a file for reading, decompressing by its suffix; zstd may take memory for 2^`window_log` bytes."""
    suffix = path.suffix.lower() if decompress else ""
    file = _open_file(path)
    # gzip and zstd readers take a file truncated at byte 0 for a whole one.
    if suffix in COMPRESSIONS and _size(path) == 0:
        file.close()
        raise _truncated(path, row=None)
    return io.BufferedReader(_Stream(file, _decompressor(suffix, file, window_log), progress), _CHUNK)


def _open_file(path: InputFile) -> IO[bytes]:
    if isinstance(path, Path):
        return open_file(path)
    if path.size > _FREE and path.size > RATIO.value * max(1, path.stored_size):
        raise read_failure(_Expands(), path)
    try:
        opened: IO[bytes] = path.opener()
        return opened
    except READ_FAILURES as error:
        raise read_failure(error, path) from None


def _size(path: InputFile) -> int:
    return path.size if isinstance(path, ArchiveMember) else path.stat().st_size


def _decompressor(suffix: str, file: IO[bytes], window_log: int) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    if suffix == ".xz":
        return lzma.LZMAFile(file)
    if suffix == ".bz2":
        return Bzip2Stream(file)
    if suffix == ".zst":
        return zstd.ZstdFile(file, options={zstd.DecompressionParameter.window_log_max: window_log})
    return file


def read_failure(error: Exception, path: InputFile, row: int | None = None) -> InputError:
    """Return the InputError for an error while reading; catch `READ_FAILURES` around the reads."""
    if isinstance(error, EOFError):
        return _truncated(path, row)
    if isinstance(error, _Expands):
        return InputError(f"decompresses to over {RATIO.value:,} times its size", path=path, row=row, hint=RATIO.hint)
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return InputError(f"cannot be read: {error.strerror or error}", path=path, row=row)
    return InputError(f"cannot be decompressed: {error}", path=path, row=row)


def _truncated(path: InputFile, row: int | None) -> InputError:
    return InputError("the file is cut off", path=path, row=row, hint="copy or download it again")


@contextmanager
def atomic_compressed_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a stream for writing; `path` appears when the block succeeds, compressed if its suffix says so.

    What a killed process left of the same file is deleted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_compressed_file(Path(folder, "note.txt.gz")) as stream:
    ...         _ = stream.write(b"short")
    ...     gzip.decompress(Path(folder, "note.txt.gz").read_bytes())
    b'short'
    """
    remove_leftovers_of(path)
    with atomic_file(path) as aside, open(aside, "wb") as file, _compressor(file, path.suffix.lower()) as stream:
        yield stream


def _compressor(file: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":
        # Without name and time, so that the same content gives the same bytes.
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    if suffix == ".zst":
        return zstd.ZstdFile(file, "wb")
    if suffix == ".xz":
        return lzma.LZMAFile(file, "wb")
    if suffix == ".bz2":
        return bz2.BZ2File(file, "wb")
    return nullcontext(file)
