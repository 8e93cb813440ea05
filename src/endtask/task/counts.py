"""Counts of the audit: rows, labels and lengths of a split, and the overlap of two splits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from endtask.records import Example, Label
from endtask.task.normalize import exact_key, normalized_key

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
