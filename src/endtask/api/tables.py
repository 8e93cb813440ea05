"""Labelled data as the user holds it, as rows of splits: data frames, data sets, lists of texts and labels, rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from endtask.errors import InputError, did_you_mean
from endtask.io.tables import Row
from endtask.progress import say
from endtask.task.hub_tables import table_of
from endtask.task.table import SPLIT_NAMES, split_of

Splits = dict[str, list[Row]]
"""The rows of each split, by its name in endtask (`validation` is `dev`)."""

_KNOWN = (
    "give a path, a pandas DataFrame, a datasets.Dataset or DatasetDict, (texts, labels), a list of dicts, or a dict "
    "of splits"
)


def is_instance(value: Any, library: str, *names: str) -> bool:
    """Return whether a value is of a class of a library, without importing it: its values come after its import."""
    module = sys.modules.get(library)
    return module is not None and any(isinstance(value, getattr(module, name, ())) for name in names)


def is_frame(data: Any) -> bool:
    """Return whether data is a pandas DataFrame."""
    return is_instance(data, "pandas", "DataFrame")


def is_column(data: Any) -> bool:
    """Return whether data is a sequence of cells: a list, a tuple, an array or a pandas Series."""
    return isinstance(data, list | tuple) or is_instance(data, "numpy", "ndarray") or is_series(data)


def is_series(data: Any) -> bool:
    """Return whether data is a pandas Series or the column of a data set, which recent versions read lazily."""
    return is_instance(data, "pandas", "Series", "Index") or is_instance(data, "datasets.arrow_dataset", "Column")


def splits_of(data: Any, *, needs_train: bool = True) -> Splits:
    """Return the rows of each split; data without splits is train.

    >>> splits_of((["a", "b"], [0, 1]))
    {'train': [{'text': 'a', 'label': 0}, {'text': 'b', 'label': 1}]}
    >>> list(splits_of({"train": [{"text": "a", "label": 0}], "validation": [{"text": "b", "label": 1}]}))
    ['train', 'dev']
    """
    if not is_dict_of_splits(data):
        return {"train": rows_of(data, "data")}
    splits: Splits = {}
    for name, part in data.items():
        split = split_of(str(name))
        if split is None and is_instance(data, "datasets", "DatasetDict"):
            say(f"split {str(name)!r} is not used (splits are train, dev, test)")
            continue
        if split is None:
            raise InputError("unknown split", path="data", key=str(name), hint=did_you_mean(str(name), SPLIT_NAMES))
        if split in splits:
            raise InputError(f"two splits are {split}", path="data", key=str(name), hint="give one of them")
        splits[split] = rows_of(part, f"data[{str(name)!r}]")
    if needs_train and "train" not in splits:
        raise InputError(f"no train split, only {', '.join(map(str, data))}", path="data")
    return splits


def is_dict_of_splits(data: Any) -> bool:
    """Return whether data is a dict whose values are tables; a dict of columns has columns of cells as values."""
    if not isinstance(data, Mapping) or not data:
        return False
    return any(split_of(str(name)) for name in data) or not all(map(is_column, data.values()))


def rows_of(data: Any, name: str) -> list[Row]:
    """Return the rows of a table; `name` is how messages call it."""
    if is_frame(data):
        return list(_rows_of_frame(data, name))
    if is_instance(data, "datasets", "Dataset"):
        return [row for _, row in table_of(name, data).rows]
    if isinstance(data, Mapping):
        return list(_rows_of_columns(data, name))
    if isinstance(data, list | tuple) and len(data) == 2 and all(map(is_column, data)):
        return list(_labelled(list(data[0]), list(data[1]), name))
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return [dict(row) for row in data]
    raise InputError(f"of type {type(data).__name__}, which is not a table", path=name, hint=_KNOWN)


def _rows_of_frame(frame: Any, name: str) -> Iterator[Row]:
    """Yield the rows of a pandas DataFrame; its index is not a column."""
    names = [str(column) for column in frame.columns]
    twice = next((column for column in names if names.count(column) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are named {twice!r}", path=name)
    for cells in frame.itertuples(index=False, name=None):
        yield dict(zip(names, cells, strict=True))


def _rows_of_columns(columns: Mapping[Any, Any], name: str) -> Iterator[Row]:
    lengths = {str(column): len(cells) for column, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{column} {length}" for column, length in lengths.items())
        raise InputError(f"the columns differ in length: {found}", path=name)
    for cells in zip(*columns.values(), strict=True):
        yield dict(zip(lengths, cells, strict=True))


def _labelled(texts: Sequence[Any], labels: Sequence[Any], name: str) -> Iterator[Row]:
    """Yield rows of texts and labels; a list of words has tags."""
    if len(texts) != len(labels):
        raise InputError(f"{len(texts):,} texts but {len(labels):,} labels", path=name)
    for number, (text, label) in enumerate(zip(texts, labels, strict=True), start=1):
        row = text_row(text, path=name, number=number)
        yield {**row, "tags" if "tokens" in row else "label": label}


def text_row(text: Any, *, path: str, number: int) -> Row:
    """Return the columns of a text, of a pair of texts (a tuple), or of the words of a text (a list).

    >>> text_row(("a", "b"), path="data", number=1)
    {'text': 'a', 'text_pair': 'b'}
    """
    if isinstance(text, str):
        return {"text": text}
    if isinstance(text, Mapping):
        return dict(text)
    cells = list(text) if is_column(text) else None
    if cells is not None and all(isinstance(cell, str) for cell in cells):
        if not isinstance(text, tuple):
            return {"tokens": cells}
        if len(cells) == 2:
            return {"text": cells[0], "text_pair": cells[1]}
    found = f"a tuple of {len(cells)}" if isinstance(text, tuple) and cells is not None else type(text).__name__
    hint = "a string, a tuple of two strings, or a list of words"
    raise InputError(f"the text is of type {found}", path=path, row=number, hint=hint)
