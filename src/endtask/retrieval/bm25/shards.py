"""Shards of the corpus: the files that pass 1 reads in parallel, and the folder of arrays that it writes for each.

A shard folder depends on no other shard, so a changed corpus recomputes only the shards that changed.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from endtask.corpus import Corpus
from endtask.corpus.cloud import RemoteFile
from endtask.corpus.corpus import FORMAT
from endtask.corpus.reading import source_contents
from endtask.corpus.sources import Source, SourceFile
from endtask.io.atomic import write_json
from endtask.io.digests import fingerprint
from endtask.io.parsing import parse_json

PASSAGE = np.dtype(
    [
        ("text_key", "<u8"),
        ("id_key", "<u8"),
        ("fallback_key", "<u8"),  # of the id that replaces a repeated id
        ("document_key", "<u8"),
        ("pairs", "<u4"),
        ("words", "<u4"),
        ("bytes", "<u4"),
        ("contaminated", "<u4"),
    ]
)
Passages = NDArray[np.void]

_LARGE = 1_000_000
"""Bytes on disk; consecutive smaller files share a shard."""
_FILES_TOGETHER = 64
"""The mean number of small files in a shard."""
_PAIR = np.dtype("<u4")
_CHUNK = 1 << 15  # passages read at a time


@dataclass(frozen=True)
class Shard:
    """Consecutive files of one source (or a source without files), read by one worker."""

    source: Source
    passage_characters: int

    def size(self) -> int:
        """Return its bytes on disk."""
        return sum(file.size() for file in self.source.files)

    def contents(self) -> dict[str, Any]:
        """Return all that determines the passages of the shard."""
        reader = {"format": FORMAT, "passage_characters": self.passage_characters}
        return {**source_contents(self.source), **reader}

    def key(self, *spec: str) -> str:
        """Return a name for the statistics that pass 1 computes of this shard for `spec`."""
        return fingerprint(self.contents(), spec)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for another process."""
        files = [_file_to_json(file) for file in self.source.files]
        source = {"name": self.source.name, "path": self.source.path, "text": self.source.text}
        options = {"license": self.source.license, "skip_errors": self.source.skip_errors}
        return {**source, **options, "files": files, "characters": self.passage_characters}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Shard:
        """Rebuild a shard from what `to_json` returned."""
        files = tuple(_file_from_json(*file) for file in value["files"])
        options = {key: value[key] for key in ("text", "license", "skip_errors")}
        source = Source(value["name"], value["path"], files=files, **options)
        return cls(source, value["characters"])


def _file_to_json(file: SourceFile) -> list[Any]:
    return [str(file.path), file.label, None if file.remote is None else asdict(file.remote)]


def _file_from_json(path: str, label: str, remote: dict[str, Any] | None) -> SourceFile:
    """Rebuild a file; the copy of a remote file is in the cache folder of this machine."""
    if remote is None:
        return SourceFile(Path(path), label)
    remote_file = RemoteFile(**remote)
    return SourceFile(remote_file.copy, label, remote_file)


def shards_of(corpus: Corpus) -> list[Shard]:
    """Return the shards in corpus order; consecutive small files of a source share a shard."""
    return [
        Shard(replace(source, files=files), corpus.passage_characters)
        for source in corpus.sources
        for files in _groups(source.files)
    ]


def _groups(files: tuple[SourceFile, ...]) -> Iterator[tuple[SourceFile, ...]]:
    """Group small files; borders depend on file names, so that a new file does not move other borders."""
    if not files:
        yield ()
    group: list[SourceFile] = []
    for file in files:
        is_large = file.size() >= _LARGE
        if is_large and group:
            yield tuple(group)
            group = []
        group.append(file)
        if is_large or crc32(file.label.encode()) % _FILES_TOGETHER == 0:
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class ShardCounts:
    """Counts of a shard: `documents` with text, `empty` documents, passages, pairs; `skipped` could not be read."""

    documents: int = 0
    empty: int = 0
    passages: int = 0
    pairs: int = 0
    skipped: int = 0
    first_skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chunk:
    """Consecutive passages of a shard from index `first` on, and all their pairs."""

    first: int
    passages: Passages
    pairs: NDArray[np.uint32]


class ShardFolder:
    """A finished shard on disk."""

    def __init__(self, path: Path, counts: ShardCounts) -> None:
        self.path = path
        self.counts = counts

    @classmethod
    def open(cls, path: Path) -> ShardFolder | None:
        """Return the shard in a folder, or None where it is missing or incomplete."""
        try:
            head = parse_json((path / "shard.json").read_text(encoding="utf-8"))
            shard = cls(path, ShardCounts(**head["counts"]))
            sizes = {name: (path / name).stat().st_size for name in head["sizes"]}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return shard if sizes == head["sizes"] else None

    def document_frequency(self) -> NDArray[np.int64]:
        """Return the number of the shard's passages, in any state, that contain each term."""
        return np.fromfile(self.path / "frequency", dtype="<i8")

    def passages(self) -> Iterator[tuple[int, Passages]]:
        """Yield chunks of passages, each with the index of its first passage."""
        with open(self.path / "passages", "rb") as file:
            for first in range(0, self.counts.passages, _CHUNK):
                yield first, np.fromfile(file, dtype=PASSAGE, count=_CHUNK)

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks of passages with their pairs."""
        with open(self.path / "pairs", "rb") as file:
            for first, passages in self.passages():
                count = int(passages["pairs"].sum())
                yield Chunk(first, passages, np.fromfile(file, dtype=_PAIR, count=count))


class ShardWriter:
    """Writes a shard to a temporary folder; `finish` renames it."""

    _NAMES = ("passages", "pairs", "frequency")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")  # several machines may write it
        self._partial.mkdir(parents=True)
        self._open = ExitStack()
        self._files: dict[str, IO[bytes]] = {}
        for name in self._NAMES:
            self._files[name] = self._open.enter_context((self._partial / name).open("wb"))

    def add(self, passages: Passages, pairs: NDArray[np.uint32]) -> None:
        """Append a block of passages."""
        for name, array in (("passages", passages), ("pairs", pairs)):
            self._files[name].write(array.tobytes())  # `tofile` does not raise on a full disk

    def finish(self, frequency: NDArray[np.int64], counts: ShardCounts) -> None:
        """Write the counts and rename the folder, which makes the shard complete."""
        self._files["frequency"].write(frequency.astype("<i8").tobytes())
        self.close()
        sizes = {name: (self._partial / name).stat().st_size for name in self._NAMES}
        head: dict[str, Any] = {"counts": asdict(counts), "sizes": sizes}
        write_json(self._partial / "shard.json", head)
        if self._path.exists():  # an incomplete shard
            shutil.rmtree(self._path)
        os.replace(self._partial, self._path)

    def close(self) -> None:
        """Close the files; without `finish` the shard stays incomplete."""
        self._open.close()
