"""Pass 1 reads every shard of the corpus once, in parallel, and writes its statistics; shards read before are reused.

Each shard is split into passages, scanned block by block for the query words and the evaluation texts, and stored as a
folder of arrays (`shards.ShardFolder`).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from endtask.corpus import Corpus
from endtask.corpus.corpus import passages_of
from endtask.corpus.reading import Skipped, SourceDocument, read_source
from endtask.executors.base import Executor, Job, Report
from endtask.io.atomic import atomic_file
from endtask.io.input_files import ReadProgress
from endtask.progress import Advance, bar
from endtask.retrieval.bm25.join import JoinedCorpus, join
from endtask.retrieval.bm25.scan import Scanned, Scanner, Terms, string_keys
from endtask.retrieval.bm25.shards import PASSAGE, Passages, Shard, ShardCounts, ShardFolder, ShardWriter, shards_of
from endtask.retrieval.contamination import ContaminationFilter

WORTH_A_PROCESS = 8_000_000
"""Bytes on disk; reading fewer is faster than starting processes."""
_BLOCK = 1 << 21
"""Characters of text scanned at a time: enough to make calls cheap, few enough for cache and memory."""
_FORMAT = "2"  # raise it when pass 1 computes something else from the same text
_REPORT_SECONDS = 0.2
_SHARD_NAME = re.compile(r"[0-9a-f]{24}(\.[0-9a-f]+\.partial)?")


@dataclass(frozen=True)
class ScanSpec:
    """The query words (numbered in alphabetical order) and evaluation texts of pass 1, and a hash of both as `key`."""

    words: tuple[str, ...]
    contamination_filter: ContaminationFilter
    key: str

    @classmethod
    def of(cls, words: Iterable[str], evaluation_texts: Sequence[str] = ()) -> ScanSpec:
        """Number the words and build the contamination filter."""
        distinct = tuple(sorted(set(words)))
        content = "\n".join([_FORMAT, *distinct, "", *sorted(set(evaluation_texts))])
        key = hashlib.blake2b(content.encode(), digest_size=12).hexdigest()
        return cls(distinct, ContaminationFilter.of(evaluation_texts), key)

    def save(self, path: Path) -> None:
        """Write the spec for other processes."""
        words = np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)
        with atomic_file(path) as aside, open(aside, "wb") as file:
            arrays: dict[str, Any] = self.contamination_filter.arrays()
            np.savez(file, words=words, key=self.key, **arrays)

    @classmethod
    def load(cls, path: Path) -> ScanSpec:
        """Read a spec that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            words = tuple(arrays["words"].tobytes().decode().splitlines())
            return cls(words, ContaminationFilter.from_arrays(arrays), str(arrays["key"]))


def read_corpus(corpus: Corpus, spec: ScanSpec, folder: Path, executor: Executor) -> JoinedCorpus:
    """Scan the shards that are not in `folder` yet, and join all shards of the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = shards_of(corpus)
    paths = [folder / shard.key(spec.key) for shard in shards]
    missing = [(shard, path) for shard, path in zip(shards, paths, strict=True) if ShardFolder.open(path) is None]
    _remove_outdated(folder, {path.name for path in paths})
    if missing:
        _scan_shards(missing, spec, folder, executor)
    scanned = []
    for shard, path in zip(shards, paths, strict=True):
        shard_folder = ShardFolder.open(path)
        if shard_folder is None:
            raise RuntimeError(f"{path} vanished while the corpus was read")
        scanned.append((shard, shard_folder))
    return join(corpus, scanned)


def _remove_outdated(folder: Path, current: set[str]) -> None:
    """Delete shards of other corpora or queries and partial shards of killed processes, but no other file."""
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in current:
            shutil.rmtree(path, ignore_errors=True)


def _scan_shards(missing: Sequence[tuple[Shard, Path]], spec: ScanSpec, folder: Path, executor: Executor) -> None:
    spec_path = folder / "spec.npz"
    spec.save(spec_path)
    total = sum(shard.size() for shard, _ in missing)
    # The largest first, so that no worker starts a large shard when the others have finished.
    ordered = sorted(missing, key=lambda pair: -pair[0].size())
    common = {"spec": [str(spec_path), spec.key], "processes": executor.processes_for_each(len(ordered))}
    jobs = [{"shard": shard.to_json(), "folder": str(path), **common} for shard, path in ordered]
    with bar("read corpus", total or None, unit="bytes") as advance:
        executor.run(__name__, jobs, _TotalProgress(advance), small=total < WORTH_A_PROCESS)


class _TotalProgress:
    """Sums the progress of all workers in a progress bar."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._started = time.monotonic()
        self._text = self._passages = 0

    def __call__(self, *, read: int, text: int, passages: int) -> None:
        self._text += text
        self._passages += passages
        speed = self._text / 1e6 / max(1e-3, time.monotonic() - self._started)
        self._advance(read, note=f"{speed:.0f} MB/s, {self._passages:,} passages")


def handle(job: Job, report: Report) -> None:
    """Scan a shard in a worker; report progress at most every fifth of a second."""
    unreported = {"read": 0, "text": 0, "passages": 0}
    last = time.monotonic()

    def progress(**amounts: int) -> None:
        nonlocal last
        for name, amount in amounts.items():
            unreported[name] += amount
        if "passages" in amounts and time.monotonic() - last > _REPORT_SECONDS:
            last = time.monotonic()
            _report(unreported, report)

    reader, shard = _reader(*job["spec"]), Shard.from_json(job["shard"])
    reader.read(shard, Path(job["folder"]), progress, processes=job.get("processes", 1))
    _report(unreported, report)


def _report(unreported: dict[str, int], report: Report) -> None:
    message = dict(unreported)
    for name, amount in message.items():
        unreported[name] -= amount
    report(**message)


@lru_cache(maxsize=1)
def _reader(spec_path: str, key: str) -> ShardReader:
    """Return the reader of this process; `key` distinguishes specs that were saved at the same path."""
    return ShardReader(ScanSpec.load(Path(spec_path)))


@dataclass
class Block:
    """Consecutive passages of a shard with their ids and documents."""

    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    readings: list[SourceDocument] = field(default_factory=list)
    empty: int = 0
    documents: int = 0


def blocks_of(
    shard: Shard, progress: ReadProgress | None = None, *, skipped: Skipped | None = None, processes: int = 1
) -> Iterator[Block]:
    """Read a shard, a block at a time."""
    block = Block()
    size = 0
    for reading in read_source(shard.source, progress, skipped=skipped, processes=processes):
        has_text = False
        for passage_id, text in passages_of(reading, shard.passage_characters):
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
    """Reads shards for a `ScanSpec`."""

    def __init__(self, spec: ScanSpec) -> None:
        self._spec = spec
        self._terms = Terms(spec.words)

    def read(self, shard: Shard, folder: Path, progress: Callable[..., None], *, processes: int = 1) -> None:
        """Scan `shard` and write its statistics to `folder`.

        Call `progress` with the bytes `read` from disk, and with the bytes of `text` and the `passages` scanned.
        """
        scanner = Scanner(self._terms, self._spec.contamination_filter.table)
        writer = ShardWriter(folder)
        documents = empty = passages = pairs = 0
        skipped = Skipped()
        try:
            for block in blocks_of(shard, lambda count: progress(read=count), skipped=skipped, processes=processes):
                scanned = scanner.scan(block.texts)
                writer.add(self._records(block, scanned), scanned.pairs)
                documents += block.documents
                empty += block.empty
                passages += len(block.texts)
                pairs += len(scanned.pairs)
                progress(text=int(scanned.sizes.sum()), passages=len(block.texts))
            counts = ShardCounts(documents, empty, passages, pairs, skipped.count, skipped.messages)
            writer.finish(scanner.document_frequency, counts)
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
        for index in np.flatnonzero(scanned.suspects).tolist():
            records["contaminated"][index] = self._spec.contamination_filter.confirm(block.texts[index])
        return records
