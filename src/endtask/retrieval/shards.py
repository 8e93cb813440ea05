"""The corpus in shards: the pieces that pass 1 reads side by side, each known by its content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from endtask.corpus import Corpus
from endtask.corpus.corpus import FORMAT
from endtask.corpus.reading import source_contents
from endtask.corpus.sources import Source, SourceFile
from endtask.io.digests import file_size, fingerprint

_LARGE = 1_000_000
"""Bytes on disk; smaller neighbors share a shard."""
_FILES_TOGETHER = 64
"""How many small files share a shard, on average."""


@dataclass(frozen=True)
class Shard:
    """Some files of one source (or a source that is not in files), read in one go."""

    source: Source
    passage_characters: int

    def size(self) -> int:
        """Bytes on disk."""
        return sum(file_size(file.path) for file in self.source.files)

    def contents(self) -> dict[str, Any]:
        """All that decides which passages the shard gives."""
        reader = {"format": FORMAT, "passage_characters": self.passage_characters}
        return {**source_contents(self.source), **reader}

    def key(self, *asked: str) -> str:
        """A name for what pass 1 makes of the shard when `asked` is looked for."""
        return fingerprint(self.contents(), asked)

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        files = [[str(file.path), file.label] for file in self.source.files]
        source = {"name": self.source.name, "path": self.source.path, "text": self.source.text}
        return {**source, "license": self.source.license, "files": files, "characters": self.passage_characters}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Shard:
        """What `to_json` wrote."""
        files = tuple(SourceFile(Path(path), label) for path, label in value["files"])
        source = Source(value["name"], value["path"], files=files, text=value["text"], license=value["license"])
        return cls(source, value["characters"])


def shards_of(corpus: Corpus) -> list[Shard]:
    """The shards in corpus order; small files that follow each other in a source go together."""
    return [
        Shard(replace(source, files=files), corpus.passage_characters)
        for source in corpus.sources
        for files in _groups(source.files)
    ]


def _groups(files: tuple[SourceFile, ...]) -> Iterator[tuple[SourceFile, ...]]:
    """Large files alone; small ones together, with borders that depend on names, so that one more file moves none."""
    if not files:
        yield ()
    group: list[SourceFile] = []
    for file in files:
        is_large = file_size(file.path) >= _LARGE
        if is_large and group:
            yield tuple(group)
            group = []
        group.append(file)
        if is_large or crc32(file.label.encode()) % _FILES_TOGETHER == 0:
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)
