"""Pass 1 over one shard: read it, cut it into passages, scan them block by block, write what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from endtask.corpus.corpus import passages_of
from endtask.corpus.reading import SourceDocument, read_source
from endtask.io.compression import ReadProgress
from endtask.retrieval.matched_passages import Asked
from endtask.retrieval.near_duplicates import SIGNATURE
from endtask.retrieval.scan import Scanned, Scanner, Terms, string_keys
from endtask.retrieval.shard_files import PASSAGE, Passages, ShardCounts, ShardWriter
from endtask.retrieval.shards import Shard

_BLOCK = 1 << 21
"""Characters of text scanned at a time: enough to make calls cheap, little enough for the cache and the memory."""


@dataclass
class Block:
    """Some passages of a shard, as they were read."""

    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    readings: list[SourceDocument] = field(default_factory=list)
    empty: int = 0
    documents: int = 0


def blocks_of(shard: Shard, progress: ReadProgress | None = None) -> Iterator[Block]:
    """Read a shard a block at a time."""
    return _blocks(read_source(shard.source, progress), shard.passage_characters)


def _blocks(readings: Iterable[SourceDocument], passage_characters: int) -> Iterator[Block]:
    block = Block()
    size = 0
    for reading in readings:
        has_text = False
        for passage_id, text in passages_of(reading, passage_characters):
            has_text = True
            block.texts.append(text)
            block.ids.append(passage_id)
            block.readings.append(reading)
            size += len(text)
            if size >= _BLOCK:
                yield block
                block, size = Block(), 0
        block.documents += has_text
        block.empty += not has_text
    yield block


class ShardReader:
    """Reads shards for one set of queries; kernels and tables are made ready once."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._terms = Terms(asked.words)

    def read(self, shard: Shard, folder: Path, progress: Callable[..., None]) -> None:
        """Pass 1 over `shard`; what was found appears in `folder`.

        `progress` is told of bytes `read` on disk, and of bytes of `text` and `passages` scanned.
        """
        scanner = Scanner(self._terms, self._asked.contamination_filter.table, signatures=self._asked.signatures)
        writer = ShardWriter(folder)
        documents = empty = passages = pairs = 0
        try:
            for block in blocks_of(shard, lambda count: progress(read=count)):
                scanned = scanner.scan(block.texts)
                writer.add(self._records(block, scanned), scanned.pairs, scanned.signatures)
                documents += block.documents
                empty += block.empty
                passages += len(block.texts)
                pairs += len(scanned.pairs)
                progress(text=int(scanned.sizes.sum()), passages=len(block.texts))
            counts = ShardCounts(documents, empty, passages, pairs)
            writer.finish(scanner.document_frequency, counts, SIGNATURE if self._asked.signatures else 0)
        finally:
            writer.close()

    def _records(self, block: Block, scanned: Scanned) -> Passages:
        records = np.zeros(len(block.texts), dtype=PASSAGE)
        records["text_key"] = scanned.text_keys
        records["id_key"] = string_keys(block.ids)
        fallbacks = [f"{name}~{reading.location}" for name, reading in zip(block.ids, block.readings, strict=True)]
        records["fallback_key"] = string_keys(fallbacks)
        records["document_key"] = string_keys([reading.id for reading in block.readings])
        records["pairs"] = scanned.pair_counts
        records["words"] = scanned.lengths
        records["bytes"] = scanned.sizes
        for place in np.flatnonzero(scanned.suspects).tolist():
            records["guarded"][place] = self._asked.contamination_filter.confirm(block.texts[place])
        return records
