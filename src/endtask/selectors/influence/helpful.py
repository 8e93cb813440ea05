"""The table of the most and the least helpful texts of each target and class, which `endtask why` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError, did_you_mean
from endtask.io.atomic import atomic_file
from endtask.io.parquet_lookup import rows_where
from endtask.io.run_layout import HELPFUL, RETRIEVED, SELECTION
from endtask.io.tables import read_rows
from endtask.progress import say
from endtask.selectors.base import values_at

if TYPE_CHECKING:
    from endtask.selectors.influence.scoring_model import Column

LISTED = 10
"""How many of the most and the least helpful units are stored for each target."""
_ROWS_AT_ONCE = 10_000
_SHOWN = ("id", "source", "title", "license", "text")

Row = dict[str, Any]


@dataclass(frozen=True)
class Listed:
    """The units with the highest scores and with the lowest, the most extreme first: (listed, columns)."""

    most: NDArray[np.int64]
    most_scores: NDArray[np.float32]
    least: NDArray[np.int64]
    least_scores: NDArray[np.float32]


def merge_lists(shards: Iterable[Mapping[str, NDArray[Any]]]) -> Listed:
    """Return the lists over all shards, from the lists of each shard."""
    merged: dict[str, NDArray[Any]] = {}
    for shard in shards:
        for side, sign in (("most", -1), ("least", 1)):
            units, scores = (
                np.concatenate([merged[name], shard[name]]) if name in merged else shard[name]
                for name in (f"{side}_units", f"{side}_scores")
            )
            order = np.argsort(sign * scores, axis=0, kind="stable")[:LISTED]
            merged[f"{side}_units"] = np.take_along_axis(units, order, axis=0)
            merged[f"{side}_scores"] = np.take_along_axis(scores, order, axis=0)
    return Listed(merged["most_units"], merged["most_scores"], merged["least_units"], merged["least_scores"])


def class_lists(by_class: NDArray[np.float32]) -> Listed:
    """Return the lists of each class, by mean scores: (units, classes)."""
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
    """Write a row for each listed passage; `members` returns the indices of a unit's candidates."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    names = [[example.id for example in column.examples] for column in columns]
    rows = [*_rows("example", names, by_column), *_rows("class", [[label] for label in labels], by_class)]
    indices = {unit: members(unit) for unit in {row["unit"] for row in rows}}
    ids = values_at(table, "id", np.concatenate([np.zeros(0, dtype=np.int64), *indices.values()]))
    for row in rows:
        row["passages"] = [ids[index] for index in indices[row.pop("unit")]]
    with atomic_file(path) as aside:
        parquet.write_table(arrow.Table.from_pylist(rows), aside, row_group_size=_ROWS_AT_ONCE)


def _rows(kind: str, names: list[list[str]], listed: Listed) -> Iterator[Row]:
    """Yield for each name the most helpful units, then the least."""
    for number, targets in enumerate(names):
        for side, units, scores in (
            ("most", listed.most, listed.most_scores),
            ("least", listed.least, listed.least_scores),
        ):
            pairs = zip(units[:, number].tolist(), scores[:, number].tolist(), strict=True)
            for rank, (unit, score) in enumerate(pairs, start=1):
                yield {"kind": kind, "targets": targets, "side": side, "rank": rank, "score": score, "unit": unit}


@dataclass(frozen=True)
class HelpfulPassage:
    """A text and its score, in standard deviations above the mean of the candidates for this target.

    `reason` is why it was selected, possibly for another target; None if it was not selected.
    """

    id: str
    source: str
    title: str | None
    license: str | None
    text: str
    score: float
    selected: bool
    reason: str | None


Passages = tuple[HelpfulPassage, ...]


@dataclass(frozen=True)
class WhyHelpful:
    """The most and the least helpful texts of a target or class; the targets of a mini-batch share their texts."""

    kind: str
    name: str
    split: str | None
    text: str | None
    label: str | None
    targets: tuple[str, ...]
    most: Passages
    least: Passages


def why_example_is_helped(run: Path, example_id: str, *, top: int = 5) -> WhyHelpful | None:
    """Return the texts that help an example; None if it was no target of the selection."""
    if not lists_helpful(run):
        return None
    rows = [row for row in rows_where(run / "select" / HELPFUL, "targets", {example_id}) if row["kind"] == "example"]
    if not rows:
        return None
    listed = _listed(run, rows, top)
    return WhyHelpful("example", example_id, *_example(run, example_id), tuple(rows[0]["targets"]), *listed)


def lists_helpful(run: Path) -> bool:
    """Return whether the run's selection used gradients, so that helpful texts are stored."""
    return (run / "select" / HELPFUL).exists()


def why_class_is_helped(run: Path, label: str, *, top: int = 5) -> WhyHelpful:
    """Return the texts that help a class, by the mean over its targets."""
    path = run / "select" / HELPFUL
    if not lists_helpful(run):
        hint = "select.name=influence lists them"
        raise InputError("this run has no texts listed by class", path=run, hint=hint)
    rows = [row for row in rows_where(path, "targets", {label}) if row["kind"] == "class"]
    if not rows:
        known = {row["targets"][0] for row in rows_where(path, "kind", {"class"}, ["targets"])}
        raise InputError(f"no class {label!r}", path=run, hint=did_you_mean(label, known))
    return WhyHelpful("class", label, None, None, label, (), *_listed(run, rows, top))


def _listed(run: Path, rows: list[Row], top: int) -> tuple[Passages, Passages]:
    """Return the most and the least helpful texts of some rows of the table."""
    listed = {side: _ranked(rows, side, top) for side in ("most", "least")}
    if top > (longest := max(map(len, listed.values()))):
        say(f"only {longest} of the most and of the least helpful texts are stored")
    ids = {passage for pairs in listed.values() for passage, _ in pairs}
    texts = {row["id"]: row for row in rows_where(run / "retrieve" / RETRIEVED, "id", ids, list(_SHOWN))}
    selected = rows_where(run / "select" / SELECTION, "id", ids, ["id", "reason"])
    reasons = {row["id"]: row["reason"] for row in selected}
    most, least = (
        tuple(
            HelpfulPassage(**texts[passage], score=score, selected=passage in reasons, reason=reasons.get(passage))
            for passage, score in pairs
        )
        for pairs in listed.values()
    )
    return most, least


def _ranked(rows: list[Row], side: str, top: int) -> list[tuple[str, float]]:
    """Return the passages of one side with their scores, by rank; passages of a unit are consecutive."""
    ranked = sorted((row for row in rows if row["side"] == side), key=lambda row: row["rank"])
    return [(passage, row["score"]) for row in ranked for passage in row["passages"]][:top]


def _example(run: Path, example_id: str) -> tuple[str, str, str]:
    """Return the split, the text and the class of a target."""
    for split in ("train", "dev"):
        for _, row in read_rows(run / "read" / f"{split}.jsonl"):
            if row["id"] == example_id:
                text = " ".join(row[key] for key in ("text", "text_pair") if row.get(key))
                return split, text, str(row.get("label"))
    hint = "was a file changed by hand?"
    raise InputError(
        f"the row {example_id!r} is a target of the selection, but no row of the task", path=run, hint=hint
    )
