"""Tables of Hugging Face data sets: from the hub, or from a folder that `save_to_disk` wrote (extra `hub`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from endtask.config import ColumnSettings
from endtask.errors import InputError
from endtask.io.input_files import import_extra
from endtask.io.rows.base import Row
from endtask.task.columns import find_columns
from endtask.task.table import SPLITS, Table, split_of, split_order

HUB_PREFIX = "hf:"

Convert = Callable[[Any], Any]


def read_hub_tables(path: str, wanted: ColumnSettings) -> tuple[dict[str, Table], list[str]]:
    """Return the table of each split of `hf:NAME` or `hf:NAME:CONFIG`, and notes about unused splits.

    Class numbers become class names. Splits without labels, such as hidden test sets, are left out.
    """
    return _tables_of(path, _load(path), wanted)


def is_saved_data_set(folder: Path) -> bool:
    """Return whether `save_to_disk` of `datasets` wrote a folder."""
    files = ("dataset_info.json", "state.json")
    return (folder / "dataset_dict.json").is_file() or all((folder / name).is_file() for name in files)


def read_saved_tables(folder: Path) -> tuple[dict[str, Table], list[str]]:
    """Return the tables of a folder that `save_to_disk` wrote; a data set without splits is the train split."""
    datasets = import_extra("datasets", "hub", folder, purpose="reading a saved data set")
    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # damaged folders raise errors of many kinds
        raise _not_loaded(str(folder), error) from None
    splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    return _tables_of(str(folder), splits, ColumnSettings())


def _tables_of(path: str, splits: Mapping[str, Any], wanted: ColumnSettings) -> tuple[dict[str, Table], list[str]]:
    tables: dict[str, Table] = {}
    notes: list[str] = []
    for name, data in splits.items():
        split = split_of(name)
        if split is None or split in tables:
            notes.append(f"split {name!r} of {path} is not used (splits are {', '.join(SPLITS)})")
            continue
        table = table_of(f"{path} {name}", data)
        if split == "train" or has_labels(table, wanted):
            tables[split] = table
        else:
            notes.append(f"split {name!r} of {path} has no labels and is ignored")
    if "train" not in tables:
        raise InputError("this data set has no train split", path=path, hint="; ".join(notes) or None)
    return {split: tables[split] for split in sorted(tables, key=split_order)}, notes


def _load(path: str) -> dict[str, Any]:
    datasets = import_extra("datasets", "hub", path, purpose="reading from the hub")
    name, _, config = path.removeprefix(HUB_PREFIX).partition(":")
    try:
        return dict(datasets.load_dataset(name, config or None))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise _not_loaded(path, error) from None


def _not_loaded(path: str, error: Exception) -> InputError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(f"cannot be loaded: {reason}", path=path)


def table_of(path: str, data: Any) -> Table:
    """Return the rows of a `datasets.Dataset` with class names in place of class numbers; `path` is for messages."""
    converters = {name: convert for name, feature in data.features.items() if (convert := _converter(feature))}
    rows = tuple((number, _convert(row, converters)) for number, row in enumerate(data, start=1))
    return Table(path, rows)


def _convert(row: Row, converters: dict[str, Convert]) -> Row:
    return {name: converters[name](value) if name in converters else value for name, value in row.items()}


def _converter(feature: Any) -> Convert | None:
    """Return a function from a column's class numbers to class names, for one class or a list of them."""
    names = getattr(feature, "names", None)
    if names is not None:
        return lambda number: _class_name(names, number)
    item_names = getattr(getattr(feature, "feature", None), "names", None)
    if item_names is not None:
        return lambda numbers: None if numbers is None else [_class_name(item_names, number) for number in numbers]
    return None


def _class_name(names: Sequence[str], number: int | None) -> str | None:
    return None if number is None or number < 0 else names[number]


def has_labels(table: Table, wanted: ColumnSettings) -> bool:
    """Return whether any row has a label; hidden test sets have none."""
    columns = find_columns(table.columns, wanted, table.path)
    column = columns.tags if columns.tokens and columns.tags else columns.label
    return column is not None and any(row.get(column) not in (None, -1) for _, row in table.rows)
