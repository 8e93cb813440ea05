"""The audit of a task: statistics of each split, overlaps between splits, and what they mean for a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

from endtask.errors import a_few
from endtask.registry import task_types
from endtask.task.counts import KeyedSplit, Overlap, SplitAudit, count_overlap, count_split
from endtask.task.task import Task

Level = Literal["error", "warning", "note"]

_FEW_ROWS = 5
_NAMED = 5
_WARNING_SHARE = 0.01
_NORMALISED = "entity markers, case and punctuation are removed"


@dataclass(frozen=True)
class Problem:
    """A finding of the audit; `rows` holds the ids of the first few examples it is about."""

    level: Level
    message: str
    split: str
    rows: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.level}: {self.message}" + (f" [{', '.join(self.rows)}]" if self.rows else "")


def find_problems(
    splits: Mapping[str, SplitAudit], overlaps: Sequence[Overlap], labels: Sequence[str], type_name: str
) -> tuple[Problem, ...]:
    """Return all findings, the most severe first."""
    found = [problem for overlap in overlaps for problem in _overlap_problems(overlap)]
    for split, statistics in splits.items():
        found += _split_problems(split, statistics)
    found += _label_problems(splits, labels, type_name)
    severity: dict[Level, int] = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda problem: severity[problem.level]))


def percent(part: int, total: int) -> str:
    """Return a fraction as a rounded percentage.

    >>> percent(52, 139), percent(4, 3469)
    ('37%', '0.1%')
    """
    value = 100 * part / total
    return f"{value:.0f}%" if value >= 1 or part == 0 else f"{value:.1g}%"


def _overlap_problems(overlap: Overlap) -> Iterator[Problem]:
    if overlap.normalized == 0:
        return
    level: Level = "warning" if overlap.normalized >= _WARNING_SHARE * overlap.rows else "note"
    if overlap.leak_free == 0 and overlap.earlier == "train":
        level = "error"
    message = f"{_overlap_text(overlap)}: {_consequence(overlap)}"
    yield Problem(level, message, overlap.later, overlap.ids)
    conflicting = overlap.exact - overlap.exact_same_label
    if conflicting:
        message = (
            f"{overlap.later} rows that are in {overlap.earlier} with another label only: {conflicting:,};"
            " their right label is in doubt"
        )
        yield Problem("note", message, overlap.later)


def _overlap_text(overlap: Overlap) -> str:
    earlier, more = overlap.earlier, overlap.normalized - overlap.exact
    if overlap.exact == 0:
        return (
            f"{more:,} of {overlap.rows:,} {overlap.later} rows ({percent(more, overlap.rows)}) are in"
            f" {earlier} once {_NORMALISED}, none verbatim"
        )
    normalized = f", and {more:,} more are once {_NORMALISED}" if more else ""
    return (
        f"{overlap.exact:,} of {overlap.rows:,} {overlap.later} rows ({percent(overlap.exact, overlap.rows)})"
        f" are verbatim in {earlier}, {overlap.exact_same_label:,} of them with the same label{normalized}"
    )


def _consequence(overlap: Overlap) -> str:
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
        f" ({overlap.leak_free:,} rows), which the report shows with the plain score"
    )


def _split_problems(split: str, statistics: SplitAudit) -> Iterator[Problem]:
    if statistics.conflicting:
        level: Level = "warning" if statistics.conflicting >= _WARNING_SHARE * statistics.rows else "note"
        message = (
            f"{statistics.conflicting:,} of {statistics.rows:,} {split} rows"
            f" ({percent(statistics.conflicting, statistics.rows)}) have a text that is in {split} with another"
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
    """Return the warning that all rows of a split have one label, which a constant prediction gets right."""
    rows = f"all {statistics.rows:,} {split} rows have" if statistics.rows > 1 else f"the only {split} row has"
    meaning = "dev cannot choose between models" if split == "dev" else "the score says nothing about other labels"
    message = f"{rows} the label {next(iter(statistics.labels))!r}: a constant prediction is right, so {meaning}"
    return Problem("warning", message, split)


_SHOWN_LABELS = 12
_NAMES = {"token_classification": "tags", "multilabel": "labels"}
_HEADER = f"{'split':<6} {'rows':>8} {'words: min':>11} {'median':>7} {'95%':>7} {'max':>7} {'repeated':>9}"


@dataclass(frozen=True)
class Audit:
    """Statistics, overlaps and problems of a task's data."""

    name: str
    type: str
    labels: tuple[str, ...]
    splits: dict[str, SplitAudit]
    overlaps: tuple[Overlap, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the audit in plain values, for `--json`."""
        tree = asdict(self)
        tree["overlaps"] = [{**asdict(overlap), "leak_free": overlap.leak_free} for overlap in self.overlaps]
        return tree

    def lines(self) -> Iterator[str]:
        """Yield the lines of the audit as text."""
        classes = f", {len(self.labels):,} {_NAMES.get(self.type, 'classes')}" if self.labels else ""
        yield f"task {self.name}: type {self.type}{classes}"
        yield _HEADER
        for split, statistics in self.splits.items():
            words = statistics.words
            yield (
                f"{split:<6} {statistics.rows:>8,} {words.minimum:>11,} {words.median:>7,} {words.p95:>7,}"
                f" {words.maximum:>7,} {statistics.exact_duplicates:>9,}"
            )
        for split, statistics in self.splits.items():
            yield f"{split} {_distribution(statistics)}"
        yield from (f"note: {note}" for note in self.notes)
        yield from (str(problem) for problem in self.problems)


def audit(task: Task) -> Audit:
    """Count rows, labels, duplicates and overlaps of a task's data and return the findings.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), f"text {n}", "even" if n % 2 == 0 else "odd") for n in range(40)]
    >>> found = audit(Task.from_examples("parity", {"train": rows[:30], "dev": rows[30:], "test": rows[:10]}))
    >>> found.problems[0].level, found.overlaps[1].exact
    ('error', 10)
    """
    keyed = [KeyedSplit(name, examples) for name, examples in task.splits.items()]
    splits = {split.name: count_split(split, task.dropped.get(split.name, 0)) for split in keyed}
    overlaps = tuple(count_overlap(earlier, later) for earlier, later in combinations(keyed, 2))
    problems = find_problems(splits, overlaps, task.labels, task.type)
    return Audit(task.name, task.type, task.labels, splits, overlaps, problems, task.notes)


def _distribution(statistics: SplitAudit) -> str:
    if statistics.scores is not None:
        lowest, middle, highest = statistics.scores
        return f"scores: from {lowest:g} to {highest:g}, median {middle:g}"
    shown = [f"{name} {count:,}" for name, count in list(statistics.labels.items())[:_SHOWN_LABELS]]
    more = len(statistics.labels) - len(shown)
    return f"labels: {', '.join(shown)}" + (f" and {more:,} more" if more else "")
