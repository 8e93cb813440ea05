"""For every target and class, the texts that would help it most and least: kept in a small table for `endtask why`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.files.atomic import whole_file
from endtask.files.selection_table import read_batches
from endtask.select.influence.columns import Column
from endtask.select.influence.lookup import LISTED
from endtask.select.influence.shards import Arrays

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Listed:
    """Units at the two ends of a scale, best (or worst) first: (listed, columns)."""

    most: NDArray[np.int64]
    most_scores: NDArray[np.float32]
    least: NDArray[np.int64]
    least_scores: NDArray[np.float32]


def merge_lists(shards: Iterable[Arrays]) -> Listed:
    """The ends over all shards, from the ends of each."""
    held: dict[str, NDArray[Any]] = {}
    for shard in shards:
        for side, sign in (("most", -1), ("least", 1)):
            units, scores = (
                np.concatenate([held[name], shard[name]]) if name in held else shard[name]
                for name in (f"{side}_units", f"{side}_scores")
            )
            order = np.argsort(sign * scores, axis=0, kind="stable")[:LISTED]
            held[f"{side}_units"] = np.take_along_axis(units, order, axis=0)
            held[f"{side}_scores"] = np.take_along_axis(scores, order, axis=0)
    return Listed(held["most_units"], held["most_scores"], held["least_units"], held["least_scores"])


def class_lists(by_class: NDArray[np.float32]) -> Listed:
    """The ends of each class's mean scores: (units, classes)."""
    rising = np.argsort(by_class, axis=0, kind="stable")
    falling = np.argsort(-by_class, axis=0, kind="stable")
    count = min(LISTED, len(by_class))
    most, least = falling[:count], rising[:count]
    return Listed(most, np.take_along_axis(by_class, most, 0), least, np.take_along_axis(by_class, least, 0))


def write_helpful(
    path: Path,
    columns: list[Column],
    by_column: Listed,
    labels: tuple[str, ...],
    by_class: Listed,
    members: Callable[[int], list[int]],
    table: Path,
) -> None:
    """Write a row for each listed passage; `members` are the places, in the table of candidates, of a unit."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    parts = [
        _Part("example", [[example.id for example in column.examples] for column in columns], by_column),
        _Part("class", [[label] for label in labels], by_class),
    ]
    distinct, unit = np.unique(np.concatenate([part.units for part in parts]), return_inverse=True)
    passages = _passages(table, [members(one) for one in distinct.tolist()])
    rows = arrow.concat_tables([_rows(part) for part in parts])
    rows = rows.append_column("passages", passages.take(arrow.array(unit)))
    with whole_file(path) as aside:
        parquet.write_table(rows, aside, row_group_size=_ROWS_AT_ONCE)


@dataclass(frozen=True)
class _Part:
    """Rows of one kind: for each name the most helpful units, then the least."""

    kind: str
    names: list[list[str]]
    listed: Listed

    @property
    def units(self) -> NDArray[np.int64]:
        return np.concatenate([self.listed.most.T, self.listed.least.T], axis=1).ravel()

    @property
    def scores(self) -> NDArray[np.float32]:
        return np.concatenate([self.listed.most_scores.T, self.listed.least_scores.T], axis=1).ravel()


def _rows(part: _Part) -> Any:
    """The Arrow table of a part, but for the passages."""
    import pyarrow as arrow

    most, least, count = len(part.listed.most), len(part.listed.least), len(part.names)
    targets = arrow.array(part.names, arrow.list_(arrow.string()))
    return arrow.table(
        {
            "kind": arrow.array(np.repeat(part.kind, (most + least) * count), arrow.string()),
            "targets": targets.take(arrow.array(np.repeat(np.arange(count), most + least))),
            "side": arrow.array(np.tile(np.repeat(["most", "least"], [most, least]), count), arrow.string()),
            "place": np.tile(np.concatenate([np.arange(most), np.arange(least)]) + 1, count),
            "score": part.scores.astype(np.float64),
        }
    )


def _passages(table: Path, places: list[list[int]]) -> Any:
    """The ids of the passages at lists of places of a table, as an Arrow array of lists."""
    import pyarrow as arrow

    wanted = np.unique(np.concatenate([np.asarray(some, dtype=np.int64) for some in places]))
    parts, start = [], 0
    for batch in read_batches(table, columns=["id"]):
        here = wanted[(wanted >= start) & (wanted < start + len(batch))] - start
        parts.append(batch.column(0).take(arrow.array(here)).cast(arrow.string()))
        start += len(batch)
    ids = arrow.concat_arrays(parts)
    ends = np.cumsum([0, *(len(some) for some in places)])
    flat = np.searchsorted(wanted, np.concatenate([np.asarray(some, dtype=np.int64) for some in places]))
    return arrow.ListArray.from_arrays(arrow.array(ends, arrow.int32()), ids.take(arrow.array(flat)))
