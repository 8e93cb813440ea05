"""Findings about a task in sentences that say what they mean for a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from endtask.errors import a_few
from endtask.registry import task_types
from endtask.task.counts import Overlap, SplitAudit

Level = Literal["error", "warning", "note"]

_FEW_ROWS = 5
_NAMED = 5
_WARNING_SHARE = 0.01
_NORMALISED = "entity markers, case and punctuation are removed"


@dataclass(frozen=True)
class Problem:
    """One finding; `rows` are the ids of the first few examples it is about."""

    level: Level
    message: str
    split: str
    rows: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.level}: {self.message}" + (f" [{', '.join(self.rows)}]" if self.rows else "")


def find_problems(
    splits: Mapping[str, SplitAudit], overlaps: Sequence[Overlap], labels: Sequence[str], type_name: str
) -> tuple[Problem, ...]:
    """All findings, the gravest first."""
    found = [problem for overlap in overlaps for problem in _overlap_problems(overlap)]
    for split, statistics in splits.items():
        found += _split_problems(split, statistics)
    found += _label_problems(splits, labels, type_name)
    gravity: dict[Level, int] = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda problem: gravity[problem.level]))


def percent(part: int, whole: int) -> str:
    """A share for people.

    >>> percent(52, 139), percent(4, 3469)
    ('37%', '0.1%')
    """
    share = 100 * part / whole
    return f"{share:.0f}%" if share >= 1 or part == 0 else f"{share:.1g}%"


def _overlap_problems(overlap: Overlap) -> Iterator[Problem]:
    if overlap.normalized == 0:
        return
    level: Level = "warning" if overlap.normalized >= _WARNING_SHARE * overlap.rows else "note"
    if overlap.leak_free == 0 and overlap.earlier == "train":
        level = "error"
    message = f"{_what_is_shared(overlap)}: {_what_it_means(overlap)}"
    yield Problem(level, message, overlap.later, overlap.ids)
    conflicting = overlap.exact - overlap.exact_same_label
    if conflicting:
        message = (
            f"{overlap.later} rows that stand in {overlap.earlier} with another label only: {conflicting:,};"
            " what is right for them is in doubt"
        )
        yield Problem("note", message, overlap.later)


def _what_is_shared(overlap: Overlap) -> str:
    earlier, more = overlap.earlier, overlap.normalized - overlap.exact
    if overlap.exact == 0:
        return (
            f"{more:,} of {overlap.rows:,} {overlap.later} rows ({percent(more, overlap.rows)}) stand in"
            f" {earlier} once {_NORMALISED}, none verbatim"
        )
    auxiliary = f", and {more:,} more do once {_NORMALISED}" if more else ""
    return (
        f"{overlap.exact:,} of {overlap.rows:,} {overlap.later} rows ({percent(overlap.exact, overlap.rows)})"
        f" stand verbatim in {earlier}, {overlap.exact_same_label:,} of them with the same label{auxiliary}"
    )


def _what_it_means(overlap: Overlap) -> str:
    if overlap.earlier != "train" and overlap.normalized_same_label == 0:
        return "dev has other labels for them, so a model chosen on dev has no advantage there"
    if overlap.earlier != "train":
        return "a model chosen on dev has been chosen on them too, so its test score is a little too high"
    if overlap.leak_free == 0:
        return f"nothing in {overlap.later} is new, so its score says nothing about new texts"
    if overlap.later == "dev":
        return "a model that memorises train scores high on them, and choosing by dev rewards it"
    return (
        "a model that memorises train scores high on them; trust the leak-free score"
        f" ({overlap.leak_free:,} rows), which the report shows beside the plain one"
    )


def _split_problems(split: str, statistics: SplitAudit) -> Iterator[Problem]:
    if statistics.conflicting:
        level: Level = "warning" if statistics.conflicting >= _WARNING_SHARE * statistics.rows else "note"
        message = (
            f"{statistics.conflicting:,} of {statistics.rows:,} {split} rows"
            f" ({percent(statistics.conflicting, statistics.rows)}) have a text that stands in {split} with another"
            " label too: no model can get all of them right"
        )
        yield Problem(level, message, split, statistics.conflicting_ids)
    if statistics.normalized_duplicates:
        message = (
            f"{split} rows that repeat an earlier {split} row: {statistics.exact_duplicates:,} verbatim,"
            f" {statistics.normalized_duplicates:,} once {_NORMALISED}; their texts weigh more than others"
        )
        yield Problem("note", message, split)


def _label_problems(splits: Mapping[str, SplitAudit], labels: Sequence[str], type_name: str) -> Iterator[Problem]:
    few = {name: splits["train"].labels[name] for name in labels if splits["train"].labels[name] < _FEW_ROWS}
    if few:
        message = (
            f"{len(few):,} of {len(labels):,} labels occur fewer than {_FEW_ROWS} times in train"
            f" ({a_few((f'{name}: {count}' for name, count in few.items()), _NAMED)}): expect little on them"
        )
        yield Problem("note", message, "train")
    for split, statistics in splits.items():
        unknown = sorted(set(statistics.labels) - set(labels))
        absent = sorted(set(labels) - set(statistics.labels))
        if unknown:
            message = f"labels of {split} that never occur in train: {len(unknown):,} ({a_few(unknown, _NAMED)})"
            yield Problem("warning", f"{message}; every one of them will be missed", split)
        if len(statistics.labels) == 1 and task_types.get(type_name).labels_of_train_only:
            yield _single_label(split, statistics)
        elif absent and statistics.labels:
            message = f"{len(absent):,} of {len(labels):,} labels do not occur in {split} ({a_few(absent, _NAMED)})"
            yield Problem("note", f"{message}: the score says nothing about them", split)


def _single_label(split: str, statistics: SplitAudit) -> Problem:
    """All rows of a split have one label, so that it cannot tell a good model from one that always answers so."""
    rows = f"all {statistics.rows:,} {split} rows have" if statistics.rows > 1 else f"the only {split} row has"
    meaning = "dev cannot choose between models" if split == "dev" else "the score says nothing about other labels"
    message = (
        f"{rows} the label {next(iter(statistics.labels))!r}: a model that always answers so is right, so {meaning}"
    )
    return Problem("warning", message, split)
