"""Counts of the audit: rows, labels and lengths of a split, and the overlap of two splits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

from endtask.errors import a_few
from endtask.records import Example, Label
from endtask.registry import task_types
from endtask.task.task import Task
from endtask.task.text_keys import exact_key, normalized_key

_SHOWN_IDS = 5


@dataclass(frozen=True)
class Lengths:
    """Words per example (both texts of a pair together)."""

    minimum: int
    median: int
    p95: int
    maximum: int


@dataclass(frozen=True)
class SplitAudit:
    """Statistics of one split.

    `labels` counts rows per class (of tags tokens per tag; of numbers it is empty, and `scores` holds minimum,
    median and maximum). Duplicates are the rows after the first of equal texts. `conflicting` counts rows
    whose text is in the same split with another label too.
    """

    rows: int
    labels: dict[str, int]
    scores: tuple[float, float, float] | None
    words: Lengths
    empty_dropped: int
    exact_duplicates: int
    normalized_duplicates: int
    conflicting: int
    conflicting_ids: tuple[str, ...]


@dataclass(frozen=True)
class Overlap:
    """How many of the `rows` of the later split are in the earlier one, and how many with the same label."""

    earlier: str
    later: str
    rows: int
    exact: int
    exact_same_label: int
    normalized: int
    normalized_same_label: int
    ids: tuple[str, ...]

    @property
    def leak_free(self) -> int:
        """Rows of the later split that are not in the earlier one even after normalisation."""
        return self.rows - self.normalized


class KeyedSplit:
    """A split with the exact and the normalised keys of its texts, computed once."""

    def __init__(self, name: str, examples: Sequence[Example]) -> None:
        self.name = name
        self.examples = examples
        self.exact = _Keys(examples, exact_key)
        self.normalized = _Keys(examples, normalized_key)


class _Keys:
    def __init__(self, examples: Sequence[Example], key: Callable[[Example], str]) -> None:
        self.keys = [key(example) for example in examples]
        self.labels: dict[str, set[Label]] = {}
        for text, example in zip(self.keys, examples, strict=True):
            self.labels.setdefault(text, set()).add(example.label)

    @property
    def duplicates(self) -> int:
        return len(self.keys) - len(self.labels)


def count_split(split: KeyedSplit, empty_dropped: int) -> SplitAudit:
    """Return the statistics of one split."""
    labels = [example.label for example in split.examples]
    scores = sorted(label for label in labels if isinstance(label, float))
    conflicting = [
        example.id
        for key, example in zip(split.exact.keys, split.examples, strict=True)
        if len(split.exact.labels[key]) > 1
    ]
    return SplitAudit(
        rows=len(split.examples),
        labels=_label_counts(labels),
        scores=(scores[0], _quantile(scores, 0.5), scores[-1]) if scores else None,
        words=_lengths(split.examples),
        empty_dropped=empty_dropped,
        exact_duplicates=split.exact.duplicates,
        normalized_duplicates=split.normalized.duplicates,
        conflicting=len(conflicting),
        conflicting_ids=tuple(conflicting[:_SHOWN_IDS]),
    )


def count_overlap(earlier: KeyedSplit, later: KeyedSplit) -> Overlap:
    """Count the rows of the later split that are in the earlier one."""
    exact = _shared(earlier.exact, later.exact, later.examples)
    normalized = _shared(earlier.normalized, later.normalized, later.examples)
    return Overlap(
        earlier=earlier.name,
        later=later.name,
        rows=len(later.examples),
        exact=len(exact),
        exact_same_label=sum(same for _, same in exact),
        normalized=len(normalized),
        normalized_same_label=sum(same for _, same in normalized),
        ids=tuple(name for name, _ in (exact or normalized)[:_SHOWN_IDS]),
    )


def _shared(earlier: _Keys, later: _Keys, examples: Sequence[Example]) -> list[tuple[str, bool]]:
    """Return (id, whether the label is the same) of the later examples that are in the earlier split."""
    return [
        (example.id, example.label in earlier.labels[key])
        for key, example in zip(later.keys, examples, strict=True)
        if key in earlier.labels
    ]


def _label_counts(labels: Iterable[Label]) -> dict[str, int]:
    """Return counts by class or tag, most frequent first, equal counts by name."""
    counts: Counter[str] = Counter()
    for label in labels:
        if not isinstance(label, float):
            counts.update([label] if isinstance(label, str) else label)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _lengths(examples: Iterable[Example]) -> Lengths:
    words = sorted(
        len(example.tokens)
        if example.tokens is not None
        else len(example.text.split()) + len((example.text_pair or "").split())
        for example in examples
    )
    return Lengths(words[0], int(_quantile(words, 0.5)), int(_quantile(words, 0.95)), words[-1])


def _quantile(ordered: Sequence[float], level: float) -> float:
    """Return the smallest value that at least this fraction of the values does not exceed."""
    return ordered[math.ceil(level * len(ordered)) - 1]


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
