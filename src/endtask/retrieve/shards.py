"""The corpus in shards: the pieces that pass 1 reads side by side, each known by its content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from endtask.corpus import Corpus
from endtask.corpus.contents import file_size, source_contents
from endtask.corpus.sources import Source, SourceFile
from endtask.files.stage_folder import fingerprint

_SMALLEST = 4_000_000
"""Bytes on disk below which neighbouring files share a shard."""


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
        return {**source_contents(self.source), "passage_characters": self.passage_characters}

    def key(self, *asked: str) -> str:
        """A name for what pass 1 makes of the shard when `asked` is looked for."""
        return fingerprint(self.contents(), asked)

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        files = [[str(file.path), file.label] for file in self.source.files]
        source = {"name": self.source.name, "path": self.source.path, "text": self.source.text}
        return {**source, "licence": self.source.licence, "files": files, "characters": self.passage_characters}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Shard:
        """What `to_json` wrote."""
        from pathlib import Path

        files = tuple(SourceFile(Path(path), label) for path, label in value["files"])
        source = Source(value["name"], value["path"], files=files, text=value["text"], licence=value["licence"])
        return cls(source, value["characters"])


def shards_of(corpus: Corpus) -> list[Shard]:
    """The shards in corpus order; small files that follow each other in a source go together."""
    return [
        Shard(replace(source, files=files), corpus.passage_characters)
        for source in corpus.sources
        for files in _groups(source.files)
    ]


def _groups(files: tuple[SourceFile, ...]) -> Iterator[tuple[SourceFile, ...]]:
    if not files:
        yield ()
    group: list[SourceFile] = []
    size = 0
    for file in files:
        group.append(file)
        size += file_size(file.path)
        if size >= _SMALLEST:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)
