"""Plain, gzip, zstd and xz files opened as byte streams; a cut-off file is an error, never a short read."""

from __future__ import annotations

import gzip
import io
import lzma
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

import zstandard

from endtask.errors import InputError

COMPRESSIONS = (".gz", ".zst", ".xz")
READ_FAILURES = (EOFError, OSError, zstandard.ZstdError, lzma.LZMAError, zlib.error)

ReadProgress = Callable[[int], None]
"""Told how many more bytes of a file (as it lies on disk) were read."""

_CHUNK = 1 << 20
_PIECES_AHEAD = 4
# Four bytes may stand for a block of 128 kB, so a file made to do harm takes 32 MB of memory a time, and no more.
_ZSTD_INPUT = 1 << 10
_LARGEST_WINDOW = 1 << 31  # what `zstd --long=31` writes; the library alone stops at 2**27


class _CountedFile(io.FileIO):
    """A file that tells of every read."""

    def __init__(self, path: Path, progress: ReadProgress) -> None:
        super().__init__(path, "rb")
        self._progress = progress

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        self._progress(count)
        return count

    def readall(self) -> bytes:
        content = super().readall()
        self._progress(len(content))
        return content


class _ShortReads(io.RawIOBase):
    """Hands on what is decompressed so far: asked for more, gzip and xz would lose it on damage."""

    def __init__(self, stream: gzip.GzipFile | lzma.LZMAFile) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class _ZstdStream(io.RawIOBase):
    """A zstd reader that, unlike the library's own stream, notices when the last frame is cut off."""

    def __init__(self, raw: IO[bytes], largest_window: int) -> None:
        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=largest_window)
        self._frame: Any = self._decompressor.decompressobj()
        self._inside_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            compressed = self._frame.unused_data if self._frame.eof else b""
            compressed = compressed or self._raw.read(_ZSTD_INPUT)
            if not compressed:
                if self._inside_frame:
                    raise EOFError("the zstd frame is cut off")
                return 0
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            self._ready = memoryview(self._frame.decompress(compressed))
            self._inside_frame = not self._frame.eof
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class _ReadAhead(io.RawIOBase):
    """Decompresses in a thread of its own, a few pieces ahead of whoever reads.

    `fetched` adds up the bytes read on disk; whoever reads is told of those behind each piece as it comes to them.
    """

    def __init__(self, stream: Any, fetched: list[int], progress: ReadProgress | None) -> None:
        self._stream = stream
        self._fetched = fetched
        self._progress = progress
        self._pieces: Queue[tuple[bytes | Exception, int]] = Queue(_PIECES_AHEAD)
        self._ready = memoryview(b"")
        self._ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready and not self._ended:
            piece, fetched = self._pieces.get()
            if self._progress and fetched:
                self._progress(fetched)
            if isinstance(piece, Exception):
                self._ended = True
                raise piece
            self._ended = not piece
            self._ready = memoryview(piece)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        """Let the thread end before its file is closed under it."""
        self._stop.set()
        while self._thread.is_alive():
            with suppress(Empty):
                self._pieces.get(timeout=0.01)
        super().close()

    def _work(self) -> None:
        piece: bytes | Exception = b""
        told = 0
        while not self._stop.is_set():
            try:
                piece = self._read_piece()
            except Exception as error:  # raised where the file is read
                piece = error
            before, told = told, sum(self._fetched)
            self._pieces.put((piece, told - before))
            if not piece or isinstance(piece, Exception):
                return

    def _read_piece(self) -> bytes:
        room = bytearray(_CHUNK)
        return bytes(memoryview(room)[: self._stream.readinto(room)])


class _OuterReader(io.BufferedReader):
    """A buffer around a decompressor at work ahead, that also closes the compressed file below it."""

    def __init__(self, stream: _ReadAhead, file: IO[bytes]) -> None:
        super().__init__(stream, _CHUNK)
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


def without_compression(name: str) -> str:
    """A file name less its compression's suffix.

    >>> without_compression("train.jsonl.zst")
    'train.jsonl'
    """
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in COMPRESSIONS else name


def bare_suffix(path: Path) -> str:
    """The file's suffix below its compression.

    >>> bare_suffix(Path("train.jsonl.zst"))
    '.jsonl'
    """
    return Path(without_compression(path.name)).suffix.lower()


def open_bytes(path: Path, progress: ReadProgress | None = None, *, largest_window: int = _LARGEST_WINDOW) -> IO[bytes]:
    """Open a file for reading, decompressing by its suffix; zstd may take memory for `largest_window` bytes."""
    suffix = path.suffix.lower()
    try:
        # gzip and zstd readers take a file cut off at byte 0 for a whole one.
        if suffix in COMPRESSIONS and path.is_file() and path.stat().st_size == 0:
            raise _cut_off(path, row=None)
        fetched: list[int] = []
        count = fetched.append if suffix in COMPRESSIONS else progress
        raw = _CountedFile(path, count) if count else io.FileIO(path)
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except IsADirectoryError:
        raise InputError("is a folder, not a file", path=path) from None
    except PermissionError:
        raise InputError("may not be read by this user", path=path) from None
    except OSError as error:
        raise read_failure(error, path) from None
    file = io.BufferedReader(raw, _CHUNK)
    if suffix not in COMPRESSIONS:
        return file
    return _OuterReader(_ReadAhead(_decompressor(suffix, file, largest_window), fetched, progress), file)


def _decompressor(suffix: str, file: IO[bytes], largest_window: int) -> io.RawIOBase:
    if suffix == ".gz":
        return _ShortReads(gzip.GzipFile(fileobj=file))
    return _ShortReads(lzma.LZMAFile(file)) if suffix == ".xz" else _ZstdStream(file, largest_window)


def read_failure(error: Exception, path: Path, row: int | None = None) -> InputError:
    """The one line that tells of an error met while reading; catch `READ_FAILURES` around the reads."""
    if isinstance(error, EOFError):
        return _cut_off(path, row)
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return InputError(f"cannot be read: {error.strerror or error}", path=path, row=row)
    return InputError(f"cannot be decompressed: {error}", path=path, row=row)


def _cut_off(path: Path, row: int | None) -> InputError:
    return InputError("the file is cut off", path=path, row=row, hint="copy or download it again")
