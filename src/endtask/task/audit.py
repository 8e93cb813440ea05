"""The audit of a task: figures of each split, what the splits share, and what that means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from endtask.task.counts import KeyedSplit, Overlap, SplitAudit, count_overlap, count_split
from endtask.task.problems import Problem, find_problems
from endtask.task.task import Task

_SHOWN_LABELS = 12
_NAMES = {"token_classification": "tags", "multilabel": "labels"}
_HEADER = f"{'split':<6} {'rows':>8} {'words: min':>11} {'median':>7} {'95%':>7} {'max':>7} {'repeated':>9}"


@dataclass(frozen=True)
class Audit:
    """What was found in a task's data."""

    name: str
    type: str
    labels: tuple[str, ...]
    splits: dict[str, SplitAudit]
    overlaps: tuple[Overlap, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The audit in plain values, for `--json`."""
        tree = asdict(self)
        tree["overlaps"] = [{**asdict(overlap), "leak_free": overlap.leak_free} for overlap in self.overlaps]
        return tree

    def lines(self) -> Iterator[str]:
        """The audit for people, line by line."""
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
            yield f"{split} {_spread(statistics)}"
        yield from (f"note: {note}" for note in self.notes)
        yield from (str(problem) for problem in self.problems)


def audit(task: Task) -> Audit:
    """Count and judge a task's data.

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


def _spread(statistics: SplitAudit) -> str:
    if statistics.scores is not None:
        lowest, middle, highest = statistics.scores
        return f"scores: from {lowest:g} to {highest:g}, median {middle:g}"
    shown = [f"{name} {count:,}" for name, count in list(statistics.labels.items())[:_SHOWN_LABELS]]
    more = len(statistics.labels) - len(shown)
    return f"labels: {', '.join(shown)}" + (f" and {more:,} more" if more else "")
