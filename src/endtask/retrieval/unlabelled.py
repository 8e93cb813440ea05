"""Unlabelled texts of the task, which may ask beside the train texts; dev and test texts among them may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.config import ColumnSettings
from endtask.corpus.reading import TEXT_COLUMNS
from endtask.corpus.sources import find_files, is_text_file
from endtask.errors import InputError, did_you_mean
from endtask.io.tables import Row, find_column, read_lines, read_rows
from endtask.records import Example
from endtask.task import normalize
from endtask.task.columns import Columns, find_columns

_KEY = "retrieve.unlabelled"


@dataclass(frozen=True)
class Unlabelled:
    """Texts that may ask, with an empty label, and how many were held back because dev or test has them too."""

    examples: tuple[Example, ...] = ()
    held_back: int = 0


def read_unlabelled(path: str, is_contaminated: Iterable[Example], columns: ColumnSettings | None = None) -> Unlabelled:
    """Read a file of texts (or a folder, or a glob), less those of the guarded examples.

    A table is read by the task's column names, where it has them, else by the usual ones; of a text file each
    line is one text. Ids are `unlabelled/<row>`, or `unlabelled/<file>#<row>` where there are several files.
    """
    if not path.strip():
        raise InputError("the path is empty", key=_KEY)
    forbidden = {normalize(text) for example in is_contaminated for text in _forms(example)} - {""}
    read = list(_read_all(path, columns or ColumnSettings()))
    if not read:
        raise InputError("holds no text", path=path, key=_KEY)
    free = tuple(example for example in read if forbidden.isdisjoint(map(normalize, _forms(example))))
    return Unlabelled(free, len(read) - len(free))


def _forms(example: Example) -> list[str]:
    """What may turn up elsewhere of an example: its text, its second text, both together."""
    if not example.text_pair:
        return [example.text]
    return [example.text, example.text_pair, f"{example.text} {example.text_pair}"]


def _read_all(path: str, named: ColumnSettings) -> Iterator[Example]:
    found = find_files(path)
    for file in found.paths:
        prefix = "unlabelled/" if len(found.paths) == 1 else f"unlabelled/{found.label(file)}#"
        for number, text, pair in _lines(file) if is_text_file(file) else _table(file, named):
            yield Example(f"{prefix}{number}", text, "", text_pair=pair, path=str(file), row=number)


def _lines(path: Path) -> Iterator[tuple[int, str, None]]:
    return ((number, line, None) for number, line in read_lines(path) if line.strip())


def _table(path: Path, named: ColumnSettings) -> Iterator[tuple[int, str, str | None]]:
    columns: Columns | None = None
    for number, row in read_rows(path):
        columns = columns or _columns(list(row), named, path)
        text = _cell(row, columns.text or columns.tokens or "", path, number)
        pair = columns.text_pair if row.get(columns.text_pair or "") is not None else None
        yield number, text, _cell(row, pair, path, number) if pair else None


def _columns(present: list[str], named: ColumnSettings, path: Path) -> Columns:
    """The columns of text; a name given for the task need not be here, since these are other files."""
    given = {role: name for role, name in named.model_dump().items() if name in present}
    found = find_columns(present, ColumnSettings(**given), str(path))
    if found.text is None and found.tokens is None:
        found = Columns(text=find_column(present, None, TEXT_COLUMNS, path=path, role="text"))
    if found.text is None and found.tokens is None:
        message = f"no column for the text among {', '.join(present) or 'none'}"
        raise InputError(message, path=path, key=_KEY, hint="name it 'text', or as in task.columns.text")
    return found


def _cell(row: Row, column: str, path: Path, number: int) -> str:
    """A cell's text; a list of tokens is joined by blanks."""
    value: Any = row.get(column)
    if isinstance(value, list) and all(isinstance(token, str) for token in value):
        return " ".join(value)
    if isinstance(value, str):
        return value
    if column not in row:
        raise InputError(f"no column {column!r}", path=path, row=number, hint=did_you_mean(column, row))
    kind = "null" if value is None else f"of type {type(value).__name__}"
    raise InputError(f"column {column!r} is {kind}, not a text", path=path, row=number)
