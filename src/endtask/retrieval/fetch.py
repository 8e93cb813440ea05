"""Fetch the texts of the retrieved passages by their indices: reads each shard once more, in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.io.selection_table import Batch, list_array, selection_schema
from endtask.progress import bar
from endtask.retrieval.bm25.join import ABSENT, JoinedShard
from endtask.retrieval.bm25.shards import Shard
from endtask.retrieval.bm25.statistics_pass import WORTH_A_PROCESS, Block, blocks_of
from endtask.retrieval.matched_queries import MatchedPassages
from endtask.retrieval.workers import Job, Report, run_jobs


@dataclass(frozen=True)
class ShardMatches:
    """The passages to fetch from one shard: their indices in the shard, renames where ids clash, and their matches.

    `sizes` are their bytes when they were ranked.
    """

    indices: NDArray[np.int64]
    renames: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    matches: MatchedPassages

    def save(self, path: Path) -> None:
        """Write the matches for another process."""
        with open(path, "wb") as file:
            np.savez(file, indices=self.indices, renames=self.renames, sizes=self.sizes, **vars(self.matches))

    @classmethod
    def load(cls, path: Path) -> ShardMatches:
        """Read what `save` wrote."""
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
    shards: Sequence[tuple[Shard, Path]], example_ids: Sequence[str], folder: Path, *, workers: int
) -> Iterator[Batch]:
    """Yield rows of `selection_schema()` in corpus order; each path is a saved `ShardMatches`."""
    import pyarrow as arrow

    folder.mkdir(parents=True, exist_ok=True)
    parts = [folder / f"{matches.stem}.arrow" for _, matches in shards]
    jobs = [
        {"shard": shard.to_json(), "matches": str(matches), "part": str(part)}
        for (shard, matches), part in zip(shards, parts, strict=True)
    ]
    total = sum(shard.size() for shard, _ in shards)
    with bar("fetch passages", total or None, unit="bytes") as advance:
        run_jobs(__name__, jobs, workers if total >= WORTH_A_PROCESS else 1, lambda read: advance(read))
    names = arrow.array(example_ids, arrow.string())
    for (_, matches), part in zip(shards, parts, strict=True):
        yield from _with_matches(part, ShardMatches.load(matches).matches, names)
        part.unlink()


def _with_matches(part: Path, matches: MatchedPassages, names: Any) -> Iterator[Batch]:
    """Yield the texts of one shard together with their ranks, scores and queries, a batch at a time."""
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
    """Write the texts of one shard in a worker, a batch for each block that was read."""
    import pyarrow as arrow

    with np.load(job["matches"], allow_pickle=False) as arrays:  # loads only the arrays that are named
        indices, renames, sizes = (arrays[name] for name in ("indices", "renames", "sizes"))
    shard = Shard.from_json(job["shard"])
    schema = arrow.schema([selection_schema().field(name) for name in ("id", "source", "title", "license", "text")])
    options = arrow.ipc.IpcWriteOptions(compression="zstd")
    first = done = reported = 0
    read: list[int] = []
    with arrow.OSFile(job["part"], "wb") as file, arrow.ipc.new_stream(file, schema, options=options) as writer:
        for block in blocks_of(shard, read.append):
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
    """Return the columns of the passages at these indices of a block; raises if they are not those that were ranked."""
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
    files = ", ".join(str(file.path) for file in shard.source.files) or shard.source.path
    return InputError("the corpus changed while it was read", path=files, hint="start again when it is complete")
