"""A task from a Hugging Face data set (extra `hub`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from endtask.config import ColumnSettings
from endtask.errors import InputError
from endtask.io.tables import Row
from endtask.task.columns import find_columns
from endtask.task.sources import HUB_PREFIX, SPLITS, Table, split_of, split_place

Convert = Callable[[Any], Any]


def read_hub_tables(path: str, wanted: ColumnSettings) -> tuple[dict[str, Table], list[str]]:
    """The table of each split of `hf:NAME` or `hf:NAME:CONFIG`, and what there is to say about them.

    Class numbers become class names. Splits without labels, as many hidden test sets have, are left out.
    """
    tables: dict[str, Table] = {}
    notes: list[str] = []
    for name, data in _load(path).items():
        split = split_of(name)
        if split is None or split in tables:
            notes.append(f"split {name!r} of {path} is not used (splits are {', '.join(SPLITS)})")
            continue
        table = _read_split(f"{path} {name}", data)
        if split == "train" or _has_labels(table, wanted):
            tables[split] = table
        else:
            notes.append(f"split {name!r} of {path} has no labels and is ignored")
    if "train" not in tables:
        raise InputError("this data set has no train split", path=path, hint="; ".join(notes) or None)
    return {split: tables[split] for split in sorted(tables, key=split_place)}, notes


def _load(path: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise InputError(
            "reading from the hub needs the package `datasets`",
            path=path,
            hint="pip install 'endtask[hub]'",
        ) from None
    name, _, config = path.removeprefix(HUB_PREFIX).partition(":")
    try:
        return dict(datasets.load_dataset(name, config or None))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be loaded: {reason}", path=path) from None


def _read_split(path: str, data: Any) -> Table:
    converters = {name: convert for name, feature in data.features.items() if (convert := _converter(feature))}
    rows = tuple((number, _convert(row, converters)) for number, row in enumerate(data, start=1))
    return Table(path, rows)


def _convert(row: Row, converters: dict[str, Convert]) -> Row:
    return {name: converters[name](value) if name in converters else value for name, value in row.items()}


def _converter(feature: Any) -> Convert | None:
    """How to turn a column's class numbers into names, for one class or a list of them."""
    names = getattr(feature, "names", None)
    if names is not None:
        return lambda number: _class_name(names, number)
    inside = getattr(getattr(feature, "feature", None), "names", None)
    if inside is not None:
        return lambda numbers: None if numbers is None else [_class_name(inside, number) for number in numbers]
    return None


def _class_name(names: Sequence[str], number: int | None) -> str | None:
    return None if number is None or number < 0 else names[number]


def _has_labels(table: Table, wanted: ColumnSettings) -> bool:
    columns = find_columns(table.columns, wanted, table.path)
    column = columns.tags if columns.tokens and columns.tags else columns.label
    return column is not None and any(row.get(column) not in (None, -1) for _, row in table.rows)
