"""Turn rankings into retrieved passages: the queries that matched each passage, and the texts of these passages.

Rankings are inverted for a range of the corpus at a time. To fetch the texts, every shard is read once more, in
parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.executors.base import Executor, Job, Report
from endtask.io.atomic import atomic_file
from endtask.io.selection_table import Batch, list_array, selection_schema
from endtask.progress import bar
from endtask.retrieval.bm25.join import ABSENT, JoinedShard
from endtask.retrieval.bm25.rankings import Rankings
from endtask.retrieval.bm25.shards import Shard
from endtask.retrieval.bm25.statistics_pass import WORTH_A_PROCESS, Block, blocks_of
from endtask.retrieval.compiled import compiled
from endtask.retrieval.queries import Query

MATCHED_QUERIES_STORED = 20
_MAX_ENTRIES = 1 << 22
"""Entries of rankings in memory at a time; each takes 16 bytes."""


@dataclass(frozen=True)
class MatchedPassages:
    """The passages of a range that match a query, in corpus order.

    `rank` is the best rank over all queries and `score` the score for that query (of equal ranks the higher score, then
    the earlier query). `query_matches` holds the indices of examples, best first, at most 20 per passage, end to end.
    """

    positions: NDArray[np.int64]
    rank: NDArray[np.int64]
    score: NDArray[np.float64]
    matched_count: NDArray[np.int64]
    query_counts: NDArray[np.int64]
    query_matches: NDArray[np.int32]

    def part(self, start: int, stop: int) -> MatchedPassages:
        """Return the passages at positions from `start` to before `stop`."""
        first, last = np.searchsorted(self.positions, [start, stop])
        return self.rows(int(first), int(last), np.cumsum(self.query_counts))

    def rows(self, first: int, last: int, query_ends: NDArray[np.int64]) -> MatchedPassages:
        """Return rows `first` to before `last`; `query_ends` are the cumulative sums of `query_counts`."""
        start, stop = (int(query_ends[row - 1]) if row else 0 for row in (first, last))
        rows = slice(first, last)
        return MatchedPassages(
            self.positions[rows],
            self.rank[rows],
            self.score[rows],
            self.matched_count[rows],
            self.query_counts[rows],
            self.query_matches[start:stop],
        )


class QueryMatches:
    """Inverts rankings; examples are numbered in the order of the queries."""

    def __init__(self, rankings: Rankings, queries: Sequence[Query]) -> None:
        self._rankings = rankings
        self._examples = np.cumsum([0, *(len(query.example_ids) for query in queries)], dtype=np.int64)

    def by_range(self, borders: Sequence[int]) -> Iterator[MatchedPassages]:
        """Yield the matched passages between neighboring `borders`, in corpus order."""
        edges = np.asarray(borders, dtype=np.int64)
        entries = np.zeros(len(edges) + 1, dtype=np.int64)
        for block in self._rankings.blocks():
            # Entry n counts positions from edge n - 1 to before edge n.
            entries += np.bincount(np.searchsorted(edges, block.positions, side="right"), minlength=len(entries))
        for first, last in _groups(entries[1:-1]):
            group = self._invert(int(edges[first]), int(edges[last]))
            yield from (group.part(int(edges[n]), int(edges[n + 1])) for n in range(first, last))

    def _invert(self, start: int, stop: int) -> MatchedPassages:
        offsets = np.zeros(stop - start + 1, dtype=np.int64)
        for block in self._rankings.blocks():
            _count(block.positions, start, stop, offsets)
        np.cumsum(offsets, out=offsets)
        cursors = offsets[:-1].copy()
        queries, ranks = np.zeros(offsets[-1], dtype=np.int32), np.zeros(offsets[-1], dtype=np.int32)
        scores = np.zeros(offsets[-1], dtype=np.float64)
        for block in self._rankings.blocks():
            entries = (block.positions, block.scores, block.sizes, block.first)
            _gather(*entries, start, stop, cursors, queries, ranks, scores)
        return self._best_query_matches(start, offsets, queries, ranks, scores)

    def _best_query_matches(
        self,
        start: int,
        offsets: NDArray[np.int64],
        queries: NDArray[np.int32],
        ranks: NDArray[np.int32],
        scores: NDArray[np.float64],
    ) -> MatchedPassages:
        matched = np.flatnonzero(np.diff(offsets))
        count = len(matched)
        rank, matched_count = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        score = np.zeros(count, dtype=np.float64)
        query_counts = np.zeros(count, dtype=np.int64)
        query_matches = np.zeros((count, MATCHED_QUERIES_STORED), dtype=np.int32)
        find_query_matches(
            matched, offsets, queries, ranks, scores, self._examples,
            rank, score, matched_count, query_counts, query_matches,
        )  # fmt: skip
        is_used = np.arange(MATCHED_QUERIES_STORED) < query_counts[:, None]  # (passages, 20)
        return MatchedPassages(matched + start, rank, score, matched_count, query_counts, query_matches[is_used])


def _groups(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield groups of neighboring ranges, each within the memory limit, as (first, last + 1)."""
    first, total = 0, 0
    for index, size in enumerate(sizes.tolist()):
        if index > first and total + size > _MAX_ENTRIES:
            yield first, index
            first, total = index, 0
        total += size
    if len(sizes):
        yield first, len(sizes)


@compiled("void(int64[::1], int64, int64, int64[::1])")
def _count(positions, start, stop, counts):  # type: ignore[no-untyped-def]
    """Count the entries of each position, shifted by one, so that cumulative sums are offsets."""
    for index in range(positions.size):
        if start <= positions[index] < stop:
            counts[positions[index] - start + 1] += 1


@compiled(
    "void(int64[::1], float64[::1], int64[::1], int64, int64, int64, int64[::1], int32[::1], int32[::1], float64[::1])"
)
def _gather(positions, scores, sizes, query, start, stop, cursors, queries, ranks, found):  # type: ignore[no-untyped-def]
    """Group the entries by position, in the order of the queries."""
    index = 0
    for size in sizes:
        for rank in range(size):
            position = positions[index]
            if start <= position < stop:
                at = cursors[position - start]
                cursors[position - start] = at + 1
                queries[at], ranks[at], found[at] = query, rank + 1, scores[index]
            index += 1
        query += 1


@compiled(
    "void(int64[::1], int64[::1], int32[::1], int32[::1], float64[::1], int64[::1],"
    "int64[::1], float64[::1], int64[::1], int64[::1], int32[:, ::1])"
)
def find_query_matches(  # type: ignore[no-untyped-def]
    matched, offsets, queries, ranks, scores, example_offsets,
    best_rank, best_score, matched_count, query_counts, query_matches,
):  # fmt: skip
    """Find the queries that match each passage, best first (lower rank, higher score, earlier query)."""
    best = np.zeros(MATCHED_QUERIES_STORED, dtype=np.int64)
    for row in range(matched.size):
        stored = 0
        for entry in range(offsets[matched[row]], offsets[matched[row] + 1]):
            query = queries[entry]
            matched_count[row] += example_offsets[query + 1] - example_offsets[query]
            index = stored
            while index > 0:
                other = best[index - 1]
                if ranks[other] < ranks[entry] or (ranks[other] == ranks[entry] and scores[other] >= scores[entry]):
                    break
                if index < MATCHED_QUERIES_STORED:
                    best[index] = other
                index -= 1
            if index < MATCHED_QUERIES_STORED:
                best[index] = entry
                stored = min(stored + 1, MATCHED_QUERIES_STORED)
        best_rank[row], best_score[row] = ranks[best[0]], scores[best[0]]
        count = 0
        for index in range(stored):
            query = queries[best[index]]
            for example in range(example_offsets[query], example_offsets[query + 1]):
                if count < MATCHED_QUERIES_STORED:
                    query_matches[row, count] = example
                    count += 1
        query_counts[row] = count


@dataclass(frozen=True)
class ShardMatches:
    """The passages to fetch from a shard: their indices in it, renames of their ids, bytes when ranked, and matches."""

    indices: NDArray[np.int64]
    renames: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    matches: MatchedPassages

    def key(self, shard: str) -> str:
        """Return a hash of the shard's name and of all that determines which texts are fetched."""
        digest = blake2b(shard.encode(), digest_size=12)
        for array in (self.indices, self.renames, self.sizes):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Write the matches for another process."""
        with open(path, "wb") as file:
            np.savez(file, indices=self.indices, renames=self.renames, sizes=self.sizes, **vars(self.matches))

    @classmethod
    def load(cls, path: Path) -> ShardMatches:
        """Read matches that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            matches = {name: arrays[name] for name in MatchedPassages.__dataclass_fields__}
            return cls(arrays["indices"], arrays["renames"], arrays["sizes"], MatchedPassages(**matches))


def locate_matches(shard: JoinedShard, matches: MatchedPassages) -> ShardMatches:
    """Find the matched passages in a shard."""
    present = np.flatnonzero(shard.states != ABSENT)
    indices = present[matches.positions - shard.first_position]
    blocks = [passages["bytes"].astype(np.int64) for _, passages in shard.folder.passages()]
    sizes = np.concatenate([np.zeros(0, dtype=np.int64), *blocks])
    return ShardMatches(indices, shard.renames[indices], sizes[indices], matches)


def fetch_passages(
    shards: Sequence[tuple[Shard, Path]], example_ids: Sequence[str], folder: Path, executor: Executor
) -> Iterator[Batch]:
    """Yield batches of `selection_schema()` in corpus order; each path is a saved `ShardMatches`.

    Texts of an interrupted call that are in `folder` are not fetched again.
    """
    import pyarrow as arrow

    folder.mkdir(parents=True, exist_ok=True)
    parts = [folder / f"{matches.stem}.arrow" for _, matches in shards]
    processes = executor.processes_for_each(len(shards))
    jobs = [
        {"shard": shard.to_json(), "matches": str(matches), "part": str(part), "processes": processes}
        for (shard, matches), part in zip(shards, parts, strict=True)
        if not part.exists()
    ]
    total = sum(shard.size() for shard, _ in shards)
    with bar("fetch passages", total or None, unit="bytes") as advance:
        executor.run(__name__, jobs, lambda read: advance(read), small=total < WORTH_A_PROCESS)
    names = arrow.array(example_ids, arrow.string())
    for (_, matches), part in zip(shards, parts, strict=True):
        yield from _with_matches(part, ShardMatches.load(matches).matches, names)
        part.unlink()


def _with_matches(part: Path, matches: MatchedPassages, names: Any) -> Iterator[Batch]:
    """Yield batches of a shard's texts with their ranks, scores and queries."""
    import pyarrow as arrow

    done = 0
    ends = np.cumsum(matches.query_counts)
    with arrow.memory_map(str(part)) as file, arrow.ipc.open_stream(file) as reader:
        for texts in reader:
            rows = matches.rows(done, done + len(texts), ends)
            done += len(texts)
            reasons = arrow.repeat(arrow.scalar("retrieved"), len(texts))
            queries = list_array(names.take(arrow.array(rows.query_matches)), rows.query_counts)
            numbers = [rows.positions, rows.rank, rows.score, rows.matched_count]
            columns = [*texts.columns, *map(arrow.array, numbers), queries, reasons]
            yield arrow.RecordBatch.from_arrays(columns, schema=selection_schema())


def handle(job: Job, report: Report) -> None:
    """Write the texts of a shard in a worker, a batch for each block."""
    import pyarrow as arrow

    with np.load(job["matches"], allow_pickle=False) as arrays:  # loads these arrays only
        indices, renames, sizes = (arrays[name] for name in ("indices", "renames", "sizes"))
    shard = Shard.from_json(job["shard"])
    schema = arrow.schema([selection_schema().field(name) for name in ("id", "source", "title", "license", "text")])
    options = arrow.ipc.IpcWriteOptions(compression="zstd")
    first = done = reported = 0
    read: list[int] = []
    with (
        atomic_file(job["part"]) as aside,
        arrow.OSFile(str(aside), "wb") as file,
        arrow.ipc.new_stream(file, schema, options=options) as writer,
    ):
        for block in blocks_of(shard, read.append, processes=job.get("processes", 1)):
            low, high = np.searchsorted(indices, [first, first + len(block.texts)])
            if low < high:
                rows = _rows(block, indices[low:high] - first, renames[low:high], sizes[low:high], shard)
                writer.write_batch(
                    arrow.RecordBatch.from_arrays([arrow.array(row, arrow.string()) for row in rows], schema=schema)
                )
            first += len(block.texts)
            done = int(high)
            before, reported = reported, sum(read)
            report(read=reported - before)
        if done < len(indices):
            raise _changed(shard)


def _rows(
    block: Block, indices: NDArray[np.int64], renames: NDArray[np.uint8], sizes: NDArray[np.int64], shard: Shard
) -> list[list[str | None]]:
    """Return the columns of passages of a block; raise `InputError` if their sizes differ from the ranked passages'."""
    rows = indices.tolist()
    texts = [block.texts[row] for row in rows]
    if [len(text.encode()) for text in texts] != sizes.tolist():
        raise _changed(shard)
    readings = [block.readings[row] for row in rows]
    ids = [
        f"{block.ids[row]}~{reading.location}{'~' * (rename - 1)}" if rename else block.ids[row]
        for row, reading, rename in zip(rows, readings, renames.tolist(), strict=True)
    ]
    return [
        [*ids],
        [shard.source.name] * len(rows),
        [reading.title for reading in readings],
        [reading.license for reading in readings],
        [*texts],
    ]


def _changed(shard: Shard) -> InputError:
    files = ", ".join(file.name for file in shard.source.files) or shard.source.path
    return InputError("the corpus changed while it was read", path=files, hint="start again when it is complete")
