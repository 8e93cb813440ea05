"""Turn texts with labelled character spans into words with BIO tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from endtask.config import ColumnSettings, TaskSettings
from endtask.errors import InputError
from endtask.io.rows.base import Row
from endtask.records import Example
from endtask.task.columns import find_columns
from endtask.task.table import Table

_WORD = re.compile(r"\w+|[^\w\s]")
_COLUMNS = ("spans", "entities", "label", "labels")
_KEYS = {
    "start": ("start", "start_offset", "start_char", "begin"),
    "end": ("end", "end_offset", "end_char", "stop"),
    "label": ("label", "type", "tag", "entity", "entity_type"),
}


class Span(NamedTuple):
    """A labelled part of a text, in characters."""

    start: int
    end: int
    label: str


def as_tagged_words(
    tables: Mapping[str, Table], settings: TaskSettings
) -> tuple[Mapping[str, Table], ColumnSettings, list[str]]:
    """Return tables with columns `tokens` and `tags` where train has texts with spans, and notes for people.

    Other tables are returned as they are. The settings of the columns returned are those of the tables returned.
    """
    train, wanted = tables["train"], settings.columns
    column = _span_column(train, wanted) if settings.type in ("auto", "token_classification") else None
    columns = find_columns(train.columns, ColumnSettings(text=wanted.text), train.path)
    if column is None or columns.text is None:
        return tables, wanted, []
    converted, widened, total = {}, 0, 0
    for split, table in tables.items():
        reader = _Reader(table.path, columns.text, column)
        converted[split] = Table(table.path, tuple((number, reader.row(row, number)) for number, row in table.rows))
        widened, total = widened + reader.widened, total + reader.total
    notes = [f"spans of column {column!r} became BIO tags of words"]
    if widened:
        notes.append(f"{widened:,} of {total:,} spans start or end inside a word, and cover the whole word")
    return converted, ColumnSettings(id=wanted.id, group=wanted.group), notes


def words_of(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of the words of a text: runs of letters and digits, and single signs.

    >>> [("in Rome."[start:end]) for start, end in words_of("in Rome.")]
    ['in', 'Rome', '.']
    """
    return [match.span() for match in _WORD.finditer(text)]


def split_punctuation(text: str) -> tuple[str, ...]:
    """Return the words of a text.

    >>> split_punctuation("in Rome.")
    ('in', 'Rome', '.')
    """
    return tuple(text[start:end] for start, end in words_of(text))


def has_punctuation_split(examples: Iterable[Example]) -> bool:
    """Return whether all tagged texts have the words that `split_punctuation` makes, as those made from spans."""
    return all(split_punctuation(" ".join(example.tokens or ())) == example.tokens for example in examples)


def bio_tags(words: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[str]:
    """Return the tag of each word; spans are ascending, and no word is in two of them.

    >>> bio_tags([(0, 3), (4, 8), (9, 12)], [Span(0, 8, "place")])
    ['B-place', 'I-place', 'O']
    """
    tags = ["O"] * len(words)
    for span in spans:
        inside = [index for index, (start, end) in enumerate(words) if start < span.end and end > span.start]
        for index in inside:
            tags[index] = f"{'B' if index == inside[0] else 'I'}-{span.label}"
    return tags


class _Reader:
    """Converts the rows of a table; counts spans, and those that end inside words."""

    def __init__(self, path: str, text: str, column: str) -> None:
        self._path, self._text, self._column = path, text, column
        self.widened = self.total = 0

    def row(self, row: Row, number: int) -> Row:
        """Return a row with `tokens` and `tags` in place of text and spans."""
        text = row.get(self._text)
        if not isinstance(text, str):
            raise self._error(f"the text in column {self._text!r} is missing or no string", number)
        words = words_of(text)
        spans = sorted(self._span(item, text, number) for item in row.get(self._column) or ())
        self._check_disjoint(spans, words, text, number)
        starts, ends = {start for start, _ in words}, {end for _, end in words}
        self.total += len(spans)
        self.widened += sum(span.start not in starts or span.end not in ends for span in spans)
        others = {key: value for key, value in row.items() if key not in (self._text, self._column)}
        tokens = [text[start:end] for start, end in words]
        return {**others, "tokens": tokens, "tags": bio_tags(words, spans)}

    def _span(self, item: Any, text: str, number: int) -> Span:
        """Return a span of a row without white space at its ends; raises `InputError`."""
        parts = _parts(item)
        start, end, label = parts or (None, None, None)
        if type(start) is not int or type(end) is not int or not isinstance(label, str) or not label.strip():
            hint = "write {start, end, label} or [start, end, label], in characters of the text"
            raise self._error(f"holds {str(item)[:60]!r}, not a span", number, hint)
        if not 0 <= start < end <= len(text):
            raise self._error(f"the span [{start}, {end}] is not in the text of {len(text)} characters", number)
        inside = text[start:end]
        if not inside.strip():
            raise self._error(f"the span [{start}, {end}] holds no word", number)
        trimmed = len(inside) - len(inside.lstrip())
        return Span(start + trimmed, start + trimmed + len(inside.strip()), label.strip())

    def _check_disjoint(self, spans: Sequence[Span], words: Sequence[tuple[int, int]], text: str, number: int) -> None:
        """Raise `InputError` where two spans share a word, which has one tag only."""
        for first, second in pairwise(spans):
            shared = next(((a, b) for a, b in words if a < first.end and b > second.start and a < second.end), None)
            if shared is not None:
                word = text[slice(*shared)]
                message = f"the spans {list(first)} and {list(second)} share the word {word!r}"
                raise self._error(message, number, "a word has one tag: leave one of them out")

    def _error(self, message: str, number: int, hint: str | None = None) -> InputError:
        return InputError(message, path=self._path, row=number, key=self._column, hint=hint)


def _parts(item: Any) -> tuple[Any, Any, Any] | None:
    """Return start, end and label of a span as files write it; None for anything else."""
    if isinstance(item, list | tuple) and len(item) == 3:
        return item[0], item[1], item[2]
    if not isinstance(item, dict):
        return None
    start, end, label = (next((item[key] for key in keys if key in item), None) for keys in _KEYS.values())
    return start, end, label


def _span_column(train: Table, wanted: ColumnSettings) -> str | None:
    """Return the column that holds spans: the one named for the tags, else the first usual one; None without one."""
    if wanted.tokens is not None:
        return None
    names = (wanted.tags or wanted.label,) if wanted.tags or wanted.label else _COLUMNS
    return next((name for name in names if name in train.columns and _holds_spans(train, name)), None)


def _holds_spans(train: Table, column: str) -> bool:
    """Return whether all cells of a column are lists, and the first item of any looks like a span."""
    cells = [row.get(column) for _, row in train.rows]
    first = next((cell[0] for cell in cells if isinstance(cell, list | tuple) and cell), None)
    return all(cell is None or isinstance(cell, list | tuple) for cell in cells) and _may_be_span(first)


def _may_be_span(item: Any) -> bool:
    start, end, _ = _parts(item) or (None, None, None)
    return type(start) is int and type(end) is int
