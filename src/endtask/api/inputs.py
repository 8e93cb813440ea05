"""The texts of a call to `predict`, in any form, as those that a predictor reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from endtask.api.tables import is_column, is_frame, is_instance, rows_of
from endtask.config import ColumnSettings
from endtask.errors import InputError
from endtask.serving.predictor import Predictor, Text
from endtask.task.columns import find_columns, is_missing

_NAME = "texts"


def is_single(texts: Any, predictor: Predictor) -> bool:
    """Return whether the argument is a single text, and no list: a string, a dict, or a tuple of two for pairs."""
    if isinstance(texts, str | Mapping):
        return True
    is_pair = isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(text, str) for text in texts)
    return is_pair and predictor.takes_pairs is not False


def texts_of(texts: Any, predictor: Predictor, columns: ColumnSettings) -> Iterator[Text]:
    """Yield texts, pairs and lists of words; raises `InputError` with the number of a text that is none of them.

    `columns` are those of the task, by which dicts and tables are read.
    """
    if is_frame(texts) or is_instance(texts, "datasets", "Dataset"):
        items: Iterable[Any] = rows_of(texts, _NAME)
    elif isinstance(texts, Iterable):
        items = texts
    else:
        raise InputError(f"of type {type(texts).__name__}", path=_NAME, hint="give a string or a list of strings")
    for number, item in enumerate(items, start=1):
        yield _text_of(item, number, predictor, columns)


def _text_of(item: Any, number: int, predictor: Predictor, columns: ColumnSettings) -> Text:
    if isinstance(item, Mapping):
        return _text_of_row(item, number, predictor, columns)
    if isinstance(item, str):
        return str(item)
    cells = list(item) if is_column(item) else None
    if cells is not None and all(isinstance(cell, str) for cell in cells):
        if predictor.task_type.per_token:
            return cells
        if len(cells) == 2:
            return (cells[0], cells[1])
    found = f"a list of {len(cells)}" if cells is not None else f"of type {type(item).__name__}"
    hint = "a string, or a tuple of two strings" if predictor.takes_pairs is not False else "a string"
    raise InputError(f"the text is {found}", path=_NAME, row=number, hint=hint)


def _text_of_row(row: Mapping[Any, Any], number: int, predictor: Predictor, columns: ColumnSettings) -> Text:
    """Return the text of a row by the columns of the task, of which those that are no texts may be missing."""
    wanted = columns.model_copy(update=dict.fromkeys(("label", "tags", "id", "group")))
    if not predictor.task_type.per_token or (wanted.tokens is not None and wanted.tokens not in row):
        wanted = wanted.model_copy(update={"tokens": None})
    found = find_columns([str(name) for name in row], wanted, f"{_NAME}, row {number}")
    if predictor.task_type.per_token and found.tokens is not None:
        return _words(row[found.tokens], number)
    if found.text is None or is_missing(row[found.text]) or not isinstance(row[found.text], str):
        names = ", ".join(map(repr, row)) or "none"
        raise InputError(f"no text among the columns {names}", path=_NAME, row=number)
    second = row[found.text_pair] if found.text_pair is not None and predictor.takes_pairs is not False else None
    return str(row[found.text]) if second is None else (str(row[found.text]), str(second))


def _words(cell: Any, number: int) -> Text:
    if isinstance(cell, str):
        return cell
    words = list(cell) if is_column(cell) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise InputError("the tokens are not a list of words", path=_NAME, row=number)
    return words
