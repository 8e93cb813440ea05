"""Errors in the report: groups of wrong rows by true and predicted label, and the rows with their evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endtask.reporting import format as shown
from endtask.reporting.prediction_rows import Candidate, PredictionRows
from endtask.reporting.run_folder import RunFolder

MOST_ROWS, MOST_IN_GROUP, MOST_CANDIDATES = 400, 50, 60
"""Rows that a report shows: of all errors, of a group, and of the candidates for wrong labels."""
_FEWEST_IN_GROUP = 3
_CHARACTERS, _NEAR_CHARACTERS = 700, 180
_MOST_NEIGHBORS = 2


@dataclass(frozen=True)
class Near:
    """A near train row: its id, label and the beginning of its text."""

    id: str
    label: str
    text: str
    similarity: float


@dataclass(frozen=True)
class ShownRow:
    """A row as a list shows it; `parts` are spans of the text and whether they are highlighted."""

    id: str
    split: str
    parts: tuple[tuple[str, bool], ...]
    label: str
    predicted: str
    confidence: float | None
    agreement: str
    leaked: bool
    near: tuple[Near, ...]


@dataclass(frozen=True)
class ErrorGroup:
    """The wrong rows with one true and one predicted label: their number, and those that are shown."""

    anchor: str
    label: str
    predicted: str
    count: int
    rows: tuple[ShownRow, ...]


@dataclass(frozen=True)
class Errors:
    """All groups, the largest first; `count` of `of` rows are wrong, of which `shown` are on the page."""

    groups: tuple[ErrorGroup, ...]
    count: int
    of: int
    shown: int

    def anchor(self, label: str, predicted: str) -> str | None:
        """Return the anchor of a group with rows."""
        return next((one.anchor for one in self.groups if (one.label, one.predicted) == (label, predicted)), None)


@dataclass(frozen=True)
class LabelCheck:
    """A candidate for a wrong label with its row."""

    row: ShownRow
    given: str
    suggested: str
    given_probability: float
    suggested_probability: float


def errors_of(run: RunFolder, rows: PredictionRows) -> Errors:
    """Return the wrong rows of the scored split; of numbers all rows, those with the largest error first."""
    groups = error_groups(rows)
    largest = dict(list(groups.items())[: MOST_ROWS // _FEWEST_IN_GROUP])
    per_group = rows_per_group([len(members) for members in largest.values()])
    chosen = {key: members[:per_group] for key, members in largest.items()}
    found = shown_rows(run, rows, [row for members in chosen.values() for row in members])
    made = [
        ErrorGroup(f"error-{number}", *key, len(groups[key]), tuple(found[row] for row in members))
        for number, (key, members) in enumerate(chosen.items())
    ]
    count = len({row for members in groups.values() for row in members})
    return Errors(tuple(made), count, len(rows.scored), len({row for members in chosen.values() for row in members}))


def rows_per_group(sizes: Sequence[int]) -> int:
    """Return how many rows of each group fit on the page: small groups leave their room to large ones.

    >>> rows_per_group([10, 20]), rows_per_group([90, 500]), rows_per_group([60] * 10), rows_per_group([9] * 133)
    (50, 50, 40, 3)
    """
    counts = range(MOST_IN_GROUP, _FEWEST_IN_GROUP, -1)
    fits = (count for count in counts if sum(min(size, count) for size in sizes) <= MOST_ROWS)
    return next(fits, _FEWEST_IN_GROUP)


def error_groups(rows: PredictionRows) -> dict[tuple[str, str], list[int]]:
    """Return the wrong rows by (true, predicted), the largest group first, in a group the surest row first."""
    columns, groups = rows.columns, defaultdict(list)
    if rows.form == "numbers":
        order = sorted(rows.scored.tolist(), key=lambda row: -abs(columns["predicted"][row] - columns["label"][row]))
        return {("all rows", "largest error first"): order} if order else {}
    wrong = [row for row in rows.scored.tolist() if not columns["right"][row]]
    for row in sorted(wrong, key=lambda row: -columns["confidence"][row]):
        for key in _keys(rows.form, columns["label"][row], columns["predicted"][row]):
            groups[key].append(row)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def _keys(form: str, label: Any, predicted: Any) -> Iterable[tuple[str, str]]:
    """Return the groups of a wrong row: its classes, each missing or additional label, or each pair of tags."""
    if form == "classes":
        return [(label, predicted)]
    if form == "label_sets":
        missing = [(name, "missing") for name in sorted(set(label) - set(predicted))]
        return missing + [(name, "additional") for name in sorted(set(predicted) - set(label))]
    return sorted({(one, other) for one, other in zip(label, predicted, strict=True) if one != other})


def label_checks(run: RunFolder, rows: PredictionRows, candidates: list[Candidate]) -> list[LabelCheck]:
    """Return the surest candidates for wrong labels with their rows."""
    best = candidates[:MOST_CANDIDATES]
    words = {one.row: one.word for one in best if one.word is not None}
    found = shown_rows(run, rows, [one.row for one in best], words)
    return [
        LabelCheck(found[one.row], one.given, one.suggested, one.given_probability, one.suggested_probability)
        for one in best
    ]


def shown_rows(
    run: RunFolder, rows: PredictionRows, numbers: Iterable[int], words: Mapping[int, int] | None = None
) -> dict[int, ShownRow]:
    """Return rows as lists show them, by number; `words` are the words to highlight in tagged texts."""
    found = rows.shown(set(numbers))
    ids = {near["id"] for row in found.values() for near in (row["neighbors"] or ())[:_MOST_NEIGHBORS]}
    train = {row["id"]: row for row in run.examples("train") if row["id"] in ids} if ids else {}
    return {number: _shown_row(row, rows.form, train, (words or {}).get(number)) for number, row in found.items()}


def _shown_row(row: Mapping[str, Any], form: str, train: Mapping[str, Mapping[str, Any]], word: int | None) -> ShownRow:
    votes = row["votes"]
    agreeing = sum(vote["answer"] == row["predicted"] for vote in votes)
    is_number = form == "numbers"
    return ShownRow(
        id=row["id"],
        split=row["split"],
        parts=_parts(row, form, word),
        label=answer_text(row["label"], form),
        predicted=answer_text(row["predicted"], form),
        confidence=row["confidence"],
        agreement="" if len(votes) == 1 or is_number else f"{agreeing} of {len(votes)} seeds",
        leaked=row["leaked"],
        near=tuple(_near(one, train, form) for one in (row["neighbors"] or ())[:_MOST_NEIGHBORS] if one["id"] in train),
    )


def _near(near: Mapping[str, Any], train: Mapping[str, Mapping[str, Any]], form: str) -> Near:
    row = train[near["id"]]
    text = " / ".join(row[key] for key in ("text", "text_pair") if row.get(key))
    label = "" if form == "tags" else answer_text(row["label"], form)
    return Near(near["id"], label, shown.shorten(text, _NEAR_CHARACTERS), near["similarity"])


def _parts(row: Mapping[str, Any], form: str, word: int | None) -> tuple[tuple[str, bool], ...]:
    """Return the text in spans; of a tagged text the wrong words, or the given one, are highlighted with their tags."""
    if form != "tags":
        text = " / ".join(row[key] for key in ("text", "text_pair") if row[key])
        return ((shown.shorten(text, _CHARACTERS), False),)
    parts: list[tuple[str, bool]] = []
    for index, (token, label, predicted) in enumerate(zip(row["tokens"], row["label"], row["predicted"], strict=True)):
        marked = index == word if word is not None else label != predicted
        parts.append((f"{token} ({label}; predicted {predicted})" if marked else token, marked))
        parts.append((" ", False))
    return tuple(parts)


def answer_text(answer: Any, form: str) -> str:
    """Return an answer as text.

    >>> answer_text(["a", "b"], "label_sets"), answer_text([], "label_sets"), answer_text(1.234, "numbers")
    ('a, b', 'none', '1.23')
    """
    if form == "numbers":
        return f"{answer:.3g}"
    if form == "label_sets":
        return ", ".join(answer) or "none"
    return " ".join(answer) if form == "tags" else str(answer)
