"""The texts of single passages, fetched by their places: each shard is read once more, side by side."""

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
from endtask.retrieval.join import ABSENT, JoinedShard
from endtask.retrieval.matched_queries import MatchedPassages
from endtask.retrieval.read_shard import Block, blocks_of
from endtask.retrieval.shards import Shard
from endtask.retrieval.statistics_pass import WORTH_A_PROCESS
from endtask.retrieval.workers import Job, Report, run_jobs


@dataclass(frozen=True)
class Wanted:
    """The passages of one shard to fetch: their numbers in the shard, new names where ids clash, and their figures.

    `sizes` are the bytes they had when they were ranked.
    """

    numbers: NDArray[np.int64]
    renames: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    asked: MatchedPassages

    def save(self, path: Path) -> None:
        """Write it for another process."""
        with open(path, "wb") as file:
            np.savez(file, numbers=self.numbers, renames=self.renames, sizes=self.sizes, **vars(self.asked))

    @classmethod
    def load(cls, path: Path) -> Wanted:
        """What `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            statistics = {name: arrays[name] for name in MatchedPassages.__dataclass_fields__}
            return cls(arrays["numbers"], arrays["renames"], arrays["sizes"], MatchedPassages(**statistics))


def wanted_of(shard: JoinedShard, asked: MatchedPassages) -> Wanted:
    """Where in a shard the asked passages stand."""
    present = np.flatnonzero(shard.states != ABSENT)
    numbers = present[asked.positions - shard.first_position]
    blocks = [passages["bytes"].astype(np.int64) for _, passages in shard.folder.passages()]
    sizes = np.concatenate([np.zeros(0, dtype=np.int64), *blocks])
    return Wanted(numbers, shard.renames[numbers], sizes[numbers], asked)


def fetch_passages(
    wanted: Sequence[tuple[Shard, Path]], example_ids: Sequence[str], folder: Path, *, workers: int
) -> Iterator[Batch]:
    """Rows of `selection_schema(class_ranks=True)`, shard after shard; of each shard a `Wanted` is on disk."""
    import pyarrow as arrow

    folder.mkdir(parents=True, exist_ok=True)
    parts = [folder / f"{statistics.stem}.arrow" for _, statistics in wanted]
    jobs = [
        {"shard": shard.to_json(), "figures": str(statistics), "part": str(part)}
        for (shard, statistics), part in zip(wanted, parts, strict=True)
    ]
    total = sum(shard.size() for shard, _ in wanted)
    with bar("fetch passages", total or None, unit="bytes") as advance:
        run_jobs(__name__, jobs, workers if total >= WORTH_A_PROCESS else 1, lambda read: advance(read))
    names = arrow.array(example_ids, arrow.string())
    for (_, statistics), part in zip(wanted, parts, strict=True):
        yield from _with_statistics(part, Wanted.load(statistics).asked, names)
        part.unlink()


def _with_statistics(part: Path, asked: MatchedPassages, names: Any) -> Iterator[Batch]:
    """The texts of one shard beside their figures, a batch at a time."""
    import pyarrow as arrow

    done = 0
    ends = np.cumsum(asked.query_counts)
    with arrow.memory_map(str(part)) as file, arrow.ipc.open_stream(file) as reader:
        for texts in reader:
            some = asked.rows(done, done + len(texts), ends)
            done += len(texts)
            reasons = arrow.repeat(arrow.scalar("retrieved"), len(texts))
            query_matches = list_array(names.take(arrow.array(some.query_matches)), some.query_counts)
            class_ranks = list_array(
                arrow.array(some.class_ranks.ravel()), np.full(len(texts), some.class_ranks.shape[1])
            )
            statistics = [some.positions, some.rank, some.score, some.matched_count]
            columns = [*texts.columns, *map(arrow.array, statistics), query_matches, reasons, class_ranks]
            yield arrow.RecordBatch.from_arrays(columns, schema=selection_schema(class_ranks=True))


def handle(job: Job, report: Report) -> None:
    """One job of a worker: write the wanted texts of a shard, a batch for each block that was read."""
    import pyarrow as arrow

    with np.load(job["figures"], allow_pickle=False) as arrays:  # which reads only what is named
        numbers, renames, sizes = (arrays[name] for name in ("numbers", "renames", "sizes"))
    shard = Shard.from_json(job["shard"])
    schema = arrow.schema([selection_schema().field(name) for name in ("id", "source", "title", "license", "text")])
    options = arrow.ipc.IpcWriteOptions(compression="zstd")
    first = done = told = 0
    read: list[int] = []
    with arrow.OSFile(job["part"], "wb") as file, arrow.ipc.new_stream(file, schema, options=options) as writer:
        for block in blocks_of(shard, read.append):
            low, high = np.searchsorted(numbers, [first, first + len(block.texts)])
            if low < high:
                rows = _rows(block, numbers[low:high] - first, renames[low:high], sizes[low:high], shard)
                writer.write_batch(
                    arrow.RecordBatch.from_arrays([arrow.array(row, arrow.string()) for row in rows], schema=schema)
                )
            first += len(block.texts)
            done = int(high)
            before, told = told, sum(read)
            report(read=told - before)
    if done < len(numbers):
        raise _changed(shard)


def _rows(
    block: Block, numbers: NDArray[np.int64], renames: NDArray[np.uint8], sizes: NDArray[np.int64], shard: Shard
) -> list[list[str | None]]:
    """The columns of some passages of a block, which must be those that were ranked."""
    places = numbers.tolist()
    texts = [block.texts[place] for place in places]
    if [len(text.encode()) for text in texts] != sizes.tolist():
        raise _changed(shard)
    readings = [block.readings[place] for place in places]
    ids = [
        f"{block.ids[place]}~{reading.location}{'~' * (rename - 1)}" if rename else block.ids[place]
        for place, reading, rename in zip(places, readings, renames.tolist(), strict=True)
    ]
    return [
        [*ids],
        [shard.source.name] * len(places),
        [reading.title for reading in readings],
        [reading.license for reading in readings],
        [*texts],
    ]


def _changed(shard: Shard) -> InputError:
    files = ", ".join(str(file.path) for file in shard.source.files) or shard.source.path
    return InputError("the corpus changed while it was read", path=files, hint="start again when it is whole")
