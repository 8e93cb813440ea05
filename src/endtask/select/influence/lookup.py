"""The texts that would help an example or a class most and least, as a finished selection has them on record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.errors import InputError, did_you_mean
from endtask.files.parquet_lookup import rows_where
from endtask.files.rows import read_rows
from endtask.files.run_layout import HELPFUL, RETRIEVED, SELECTION
from endtask.progress import say

LISTED = 10
"""How many of the most and the least helpful units are kept on record for each target."""
_SHOWN = ("id", "source", "title", "licence", "text")


@dataclass(frozen=True)
class HelpfulPassage:
    """A text and its score: in deviations above (or below) the usual candidate's for this target.

    `reason` is why it was kept, which may be for the sake of another target; None where it was not.
    """

    id: str
    source: str
    title: str | None
    licence: str | None
    text: str
    score: float
    kept: bool
    reason: str | None


Passages = tuple[HelpfulPassage, ...]
Row = dict[str, Any]


@dataclass(frozen=True)
class WhyHelpful:
    """Whom texts help, most helpful and least helpful first; mini-batches of targets share their texts."""

    kind: str
    name: str
    split: str | None
    text: str | None
    label: str | None
    targets: tuple[str, ...]
    most: Passages
    least: Passages


def why_example_is_helped(run: Path, example_id: str, *, top: int = 5) -> WhyHelpful | None:
    """The texts that help an example; None where gradients had no part in the selection, or the example no part."""
    if not lists_helpful(run):
        return None
    rows = [row for row in rows_where(run / "select" / HELPFUL, "targets", {example_id}) if row["kind"] == "example"]
    if not rows:
        return None
    listed = _listed(run, rows, top)
    return WhyHelpful("example", example_id, *_example(run, example_id), tuple(rows[0]["targets"]), *listed)


def lists_helpful(run: Path) -> bool:
    """Whether gradients chose the texts of a run, so that some of its rows have texts on record."""
    return (run / "select" / HELPFUL).exists()


def why_class_is_helped(run: Path, label: str, *, top: int = 5) -> WhyHelpful:
    """The texts that help a class, by the mean over its targets."""
    path = run / "select" / HELPFUL
    if not lists_helpful(run):
        hint = "select.selector=influence lists them"
        raise InputError("this run has no texts listed by class", path=run, hint=hint)
    rows = [row for row in rows_where(path, "targets", {label}) if row["kind"] == "class"]
    if not rows:
        known = {row["targets"][0] for row in rows_where(path, "kind", {"class"}, ["targets"])}
        raise InputError(f"no class {label!r}", path=run, hint=did_you_mean(label, known))
    return WhyHelpful("class", label, None, None, label, (), *_listed(run, rows, top))


def _listed(run: Path, rows: list[Row], top: int) -> tuple[Passages, Passages]:
    """The most and the least helpful texts of some rows of the record."""
    listed = {side: _ranked(rows, side, top) for side in ("most", "least")}
    if top > (most_listed := max(map(len, listed.values()))):
        say(f"{most_listed} of the most and of the least helpful texts are on record, no more")
    wanted = {passage for pairs in listed.values() for passage, _ in pairs}
    texts = {row["id"]: row for row in rows_where(run / "retrieve" / RETRIEVED, "id", wanted, list(_SHOWN))}
    kept = {row["id"]: row["reason"] for row in rows_where(run / "select" / SELECTION, "id", wanted, ["id", "reason"])}
    most, least = (
        tuple(
            HelpfulPassage(**texts[passage], score=score, kept=passage in kept, reason=kept.get(passage))
            for passage, score in pairs
        )
        for pairs in listed.values()
    )
    return most, least


def _ranked(rows: list[Row], side: str, top: int) -> list[tuple[str, float]]:
    """Passages of one side with their scores, the first first; those of one unit follow each other."""
    here = sorted((row for row in rows if row["side"] == side), key=lambda row: row["place"])
    return [(passage, row["score"]) for row in here for passage in row["passages"]][:top]


def _example(run: Path, example_id: str) -> tuple[str, str, str]:
    """The split, the text and the class of a target."""
    for split in ("train", "dev"):
        for _, row in read_rows(run / "read" / f"{split}.jsonl"):
            if row["id"] == example_id:
                text = " ".join(row[key] for key in ("text", "text_pair") if row.get(key))
                return split, text, str(row.get("label"))
    hint = "was a file changed by hand?"
    raise InputError(
        f"the row {example_id!r} is a target of the selection, but no row of the task", path=run, hint=hint
    )
