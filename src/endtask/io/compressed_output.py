"""Files written whole or not at all, compressed by their suffix."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from endtask.io.atomic import atomic_file
from endtask.io.compression import zstd


@contextmanager
def atomic_compressed_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a stream whose content appears at `path` when the block ends well; `.gz`, `.zst` and `.xz` compress it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_compressed_file(Path(folder, "note.txt.gz")) as stream:
    ...         _ = stream.write(b"short")
    ...     gzip.decompress(Path(folder, "note.txt.gz").read_bytes())
    b'short'
    """
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
    return nullcontext(file)
