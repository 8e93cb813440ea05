"""Read the table of each split: from one file, a folder with one file per split, or the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.config import ColumnSettings
from endtask.errors import InputError, nearest
from endtask.io.compression import COMPRESSIONS, bare_suffix
from endtask.io.tables import ROW_SUFFIXES, Row, read_rows
from endtask.task.columns import find_columns

SPLITS = ("train", "dev", "test")
SPLIT_NAMES: Mapping[str, str] = {
    "train": "train",
    **dict.fromkeys(("dev", "validation", "valid", "val"), "dev"),
    "test": "test",
}
HUB_PREFIX = "hf:"
TEST_SET = "test-"
"""Prefix of the names of several test sets."""
_KNOWN = f"{' '.join(ROW_SUFFIXES)}, plain or {' '.join(COMPRESSIONS)}"


@dataclass(frozen=True)
class Table:
    """The rows of one split as in the file, with their row numbers."""

    path: str
    rows: tuple[tuple[int, Row], ...]

    @property
    def columns(self) -> list[str]:
        """All columns that any row has; rows of JSON Lines may leave out columns."""
        return list(dict.fromkeys(name for _, row in self.rows for name in row))


def read_tables(path: str) -> dict[str, Table]:
    """Return the table of each split in a file or folder; a single file is the train split."""
    if not path:
        raise InputError("no task given", key="task.path", hint="a file, a folder, hf:NAME or docstrings")
    source = Path(path)
    if source.is_dir():
        return {split: _read_table(file) for split, file in split_files(source).items()}
    if not source.exists():
        raise _missing(source)
    return {"train": _read_table(source)}


def task_name(path: str) -> str:
    """Return a short name for the task at a path.

    >>> task_name("data/reviews.csv.gz"), task_name("data/chemprot/"), task_name("hf:owner/rotten:en")
    ('reviews', 'chemprot', 'rotten')
    """
    if path.startswith(HUB_PREFIX):
        return Path(path.removeprefix(HUB_PREFIX).split(":")[0]).name
    source = Path(path)
    return source.resolve().name if source.is_dir() else _bare_name(source) or source.name


def split_of(name: str) -> str | None:
    """Return the split that a file or hub split is named after, `test-NAME` for one of several test sets.

    >>> [split_of(name) for name in ("train", "valid", "test_matched", "test-new", "extra")]
    ['train', 'dev', 'test-matched', 'test-new', None]
    """
    name = name.lower().replace("_", "-")
    if name.startswith(TEST_SET) and name != TEST_SET:
        return name
    return SPLIT_NAMES.get(name.removesuffix("-matched"))


def split_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split in a folder, in the order train, dev, test, other test sets by name."""
    files = [entry for entry in _entries(folder) if entry.is_file() and not entry.name.startswith(".")]
    found: dict[str, Path] = {}
    for file in files:
        split = split_of(_bare_name(file))
        if split is None or bare_suffix(file) not in ROW_SUFFIXES:
            continue
        if split in found:
            raise InputError(
                f"two files for the {split} split: {found[split].name} and {file.name}",
                path=folder,
                hint="keep one of them",
            )
        found[split] = file
    if "train" not in found:
        names = ", ".join(file.name for file in files[:10])
        only = f"only {names}" if names else "which has no files"
        raise InputError(f"no train file in this folder, {only}", path=folder, hint=f"train with {_KNOWN}")
    return {split: found[split] for split in sorted(found, key=_split_order)}


def _split_order(split: str) -> tuple[int, str]:
    """Return a sort key: train, dev, test, then other test sets by name."""
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"the folder cannot be listed: {error.strerror}", path=folder) from None


def _read_table(path: Path) -> Table:
    return Table(str(path), tuple(read_rows(path)))


def _bare_name(path: Path) -> str:
    """Return the file name without format and compression: `my.data` of `my.data.csv.gz`."""
    name = path.name
    suffix = Path(name).suffix.lower()
    if suffix in COMPRESSIONS:
        name = name[: -len(suffix)]
    suffix = Path(name).suffix.lower()
    return name[: -len(suffix)] if suffix in ROW_SUFFIXES else name


def _missing(path: Path) -> InputError:
    folder = path.parent
    close = nearest(path.name, [entry.name for entry in _entries(folder)]) if folder.is_dir() else None
    return InputError(
        "no such file or folder", path=path, hint=f"did you mean {str(folder / close)!r}?" if close else None
    )


Convert = Callable[[Any], Any]


def read_hub_tables(path: str, wanted: ColumnSettings) -> tuple[dict[str, Table], list[str]]:
    """Return the table of each split of `hf:NAME` or `hf:NAME:CONFIG`, and notes about unused splits.

    Class numbers become class names. Splits without labels, such as hidden test sets, are left out.
    """
    tables: dict[str, Table] = {}
    notes: list[str] = []
    for name, data in _load(path).items():
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
    return {split: tables[split] for split in sorted(tables, key=_split_order)}, notes


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
