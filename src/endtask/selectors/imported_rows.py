"""Rows of anyone's own selection as passages; every complaint names file, row and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from endtask.corpus.deduplicate import Seen, key_of
from endtask.corpus.reading import TEXT_COLUMNS
from endtask.corpus.sources import derived_name
from endtask.errors import InputError, did_you_mean, nearest
from endtask.io.selection_table import selection_schema
from endtask.io.tables import Row, find_column, read_rows
from endtask.progress import say
from endtask.records import Document, Selected
from endtask.task.examples import as_number

_OWN_COLUMN = "matched_count"  # stands in our own tables, and hardly in others
_MISSING = (None, "")
_LARGEST_RANK = 1 << 53  # whole numbers up to here survive a table that keeps them as floats


@dataclass
class ImportedRows:
    """The passages of a table file, and after a pass over them, the counts of what was met.

    Ranks of our own tables count from 1. Others may count from 0, as the TLM authors' do, so theirs are raised by 1;
    without a column `rank` the row's place is the rank. Who asked is left out: those ids mean another run's examples.
    `is_contaminated` tells the texts to be left out.
    """

    path: Path
    is_contaminated: Callable[[str], bool] | None = None
    read: int = 0
    empty: int = 0
    dropped_by_contamination_filter: int = 0

    def __iter__(self) -> Iterator[Selected]:
        self.read = self.empty = self.dropped_by_contamination_filter = 0
        form: _Form | None = None
        ids = Seen()
        for number, row in read_rows(self.path):
            if form is None:
                form = _form_of(row, self.path, number)
                _name_unused(row, form)
            passage = _passage(row, number, form, place=self.read)
            self.read += 1
            if not passage.document.text.strip():
                self.empty += 1
            elif self.is_contaminated is not None and self.is_contaminated(passage.document.text):
                self.dropped_by_contamination_filter += 1
            else:
                unique = _unique(passage.document.id, number, ids)
                yield replace(passage, document=replace(passage.document, id=unique))
        if not self.read:
            raise _no_rows(self.path)


def check_readable(path: Path) -> None:
    """Complain now about a file of another kind, without rows or without a column of texts."""
    number, row = next(read_rows(path), (0, {}))
    if not number:
        raise _no_rows(path)
    _form_of(row, path, number)


def _no_rows(path: Path) -> InputError:
    return InputError("the file holds no rows", path=path, key="select.path")


class _Form(NamedTuple):
    """What the first row tells about the file."""

    path: Path
    source: str
    text: str
    has_ranks: bool
    first_rank: int


def _form_of(row: Row, path: Path, number: int) -> _Form:
    columns = list(row)
    text = find_column(columns, None, TEXT_COLUMNS, path=path, role="text")
    if text is None:
        close = next((name for name in columns if nearest(name, TEXT_COLUMNS)), None)
        hint = f"rename {close!r} to 'text'" if close else f"known: {', '.join(TEXT_COLUMNS)}"
        raise InputError(f"no column for the text among {', '.join(columns)}", path=path, row=number, hint=hint)
    first_rank = 1 if _OWN_COLUMN in columns else 0
    return _Form(path, derived_name(path), text, row.get("rank") not in _MISSING, first_rank)


def _name_unused(row: Row, form: _Form) -> None:
    unused = [name for name in row if name not in {*selection_schema().names, "license", form.text}]
    if unused:
        say(f"{form.path}: columns that are not used: {', '.join(unused)}")


def _passage(row: Row, number: int, form: _Form, *, place: int) -> Selected:
    text = row.get(form.text)
    if not isinstance(text, str):
        if form.text not in row:
            raise InputError(f"no column {form.text!r}", path=form.path, row=number, hint=did_you_mean(form.text, row))
        raise _wrong(row, form.text, number, form, "must be a text")
    ranked = form.has_ranks or row.get("rank") not in _MISSING
    given = _rank(row, number, form) if ranked else form.first_rank + place
    source = _name(row, "source", number, form) or form.source
    document = Document(
        _name(row, "id", number, form) or f"{source}/{form.path.name}#{number}",
        text,
        source,
        _name(row, "title", number, form),
        _name(row, "license", number, form) or _name(row, "license", number, form),
    )
    reason = f"imported: rank {given} in {form.path.name}" if ranked else f"imported: row {number} of {form.path.name}"
    return Selected(document, place, given - form.first_rank + 1, _score(row, number, form), 0, (), reason)


def _rank(row: Row, number: int, form: _Form) -> int:
    given = row.get("rank")
    if (given not in _MISSING) != form.has_ranks:
        what = "has no rank" if form.has_ranks else "has a rank"
        raise InputError(f"{what}, unlike the rows before it", path=form.path, row=number, key="rank")
    rank = as_number(given)
    if rank is None or not rank.is_integer() or not form.first_rank <= rank <= _LARGEST_RANK:
        raise _wrong(row, "rank", number, form, f"must be a whole number from {form.first_rank} up")
    return int(rank)


def _score(row: Row, number: int, form: _Form) -> float:
    given = row.get("score")
    score = 0.0 if given in _MISSING else as_number(given)
    if score is None:
        raise _wrong(row, "score", number, form, "must be a finite number")
    return score


def _name(row: Row, column: str, number: int, form: _Form) -> str | None:
    """A cell of text, or of a number that serves as a name."""
    value = row.get(column)
    if value in _MISSING:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _wrong(row, column, number, form, "must be a text or a number")
    return str(value)


def _wrong(row: Row, column: str, number: int, form: _Form, what: str) -> InputError:
    given = row[column]
    shown = "null" if given is None else repr(given)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    return InputError(f"{what}, got {shown}", path=form.path, row=number, key=column)


def _unique(wanted: str, number: int, ids: Seen) -> str:
    """The id, or where an earlier row has it, the id with the row's number."""
    unique = wanted
    while not ids.add(key_of(unique)):
        unique = f"{wanted}~{number}" if unique == wanted else f"{unique}~"
    return unique
