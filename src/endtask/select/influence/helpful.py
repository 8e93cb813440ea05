"""For every target and class, the texts that would help it most and least: kept in a small table for `endtask why`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from endtask.files.atomic import whole_file
from endtask.files.selection_table import read_batches
from endtask.select.influence.columns import Column
from endtask.select.influence.shards import LISTED, Arrays

Side = Literal["most", "least"]
Row = dict[str, Any]
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

    of_columns = _rows([[example.id for example in column.examples] for column in columns], "example", by_column)
    of_classes = _rows([[label] for label in labels], "class", by_class)
    rows = [row for part in (of_columns, of_classes) for row in part]
    ids = _ids(table, {place for row in rows for place in members(row["unit"])})
    schema = arrow.schema(
        [
            ("kind", arrow.string()),
            ("targets", arrow.list_(arrow.string())),
            ("side", arrow.string()),
            ("place", arrow.int64()),
            ("score", arrow.float64()),
            ("passages", arrow.list_(arrow.string())),
        ]
    )
    filled = [{**row, "passages": [ids[place] for place in members(row["unit"])]} for row in rows]
    with whole_file(path) as aside:
        parquet.write_table(arrow.Table.from_pylist(filled, schema=schema), aside, row_group_size=_ROWS_AT_ONCE)


def _rows(names: list[list[str]], kind: str, listed: Listed) -> Iterator[Row]:
    sides: tuple[tuple[Side, NDArray[np.int64], NDArray[np.float32]], ...] = (
        ("most", listed.most, listed.most_scores),
        ("least", listed.least, listed.least_scores),
    )
    for number, targets in enumerate(names):
        for side, units, scores in sides:
            for place, (unit, score) in enumerate(zip(units[:, number], scores[:, number], strict=True), start=1):
                yield {
                    "kind": kind,
                    "targets": targets,
                    "side": side,
                    "place": place,
                    "score": float(score),
                    "unit": int(unit),
                }


def _ids(table: Path, places: set[int]) -> dict[int, str]:
    """The ids of passages at some places of a table."""
    found: dict[int, str] = {}
    start = 0
    for batch in read_batches(table, columns=["id"]):
        names = batch.column(0)
        found.update({start + at: names[at].as_py() for at in range(len(batch)) if start + at in places})
        start += len(batch)
    return found
