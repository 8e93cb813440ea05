"""Where a task's rows come from: one file, a folder with one file a split, or the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from endtask.errors import InputError, nearest
from endtask.io.compression import COMPRESSIONS, bare_suffix
from endtask.io.tables import ROW_SUFFIXES, Row, read_rows

SPLITS = ("train", "dev", "test")
SPLIT_NAMES: Mapping[str, str] = {
    "train": "train",
    **dict.fromkeys(("dev", "validation", "valid", "val"), "dev"),
    "test": "test",
}
HUB_PREFIX = "hf:"
TEST_SET = "test-"
"""How the names of several test sets' tables begin."""
_KNOWN = f"{' '.join(ROW_SUFFIXES)}, plain or {' '.join(COMPRESSIONS)}"


@dataclass(frozen=True)
class Table:
    """The rows of one split as they stand in the file, with their row numbers."""

    path: str
    rows: tuple[tuple[int, Row], ...]

    @property
    def columns(self) -> list[str]:
        """Every column that some row has; rows of JSON Lines may leave out columns."""
        return list(dict.fromkeys(name for _, row in self.rows for name in row))


def read_tables(path: str) -> dict[str, Table]:
    """The table of each split that a file or folder holds; a single file is all train."""
    if not path:
        raise InputError("no task given", key="task.path", hint="a file, a folder, hf:NAME or docstrings")
    place = Path(path)
    if place.is_dir():
        return {split: _read_table(file) for split, file in split_files(place).items()}
    if not place.exists():
        raise _not_there(place)
    return {"train": _read_table(place)}


def task_name(path: str) -> str:
    """A short name for the task at a path.

    >>> task_name("data/reviews.csv.gz"), task_name("data/chemprot/"), task_name("hf:owner/rotten:en")
    ('reviews', 'chemprot', 'rotten')
    """
    if path.startswith(HUB_PREFIX):
        return Path(path.removeprefix(HUB_PREFIX).split(":")[0]).name
    place = Path(path)
    return place.resolve().name if place.is_dir() else _bare_name(place) or place.name


def split_of(name: str) -> str | None:
    """The split that a file's or a hub split's name stands for; of several test sets `test-NAME`.

    >>> [split_of(name) for name in ("train", "valid", "test_matched", "test-new", "extra")]
    ['train', 'dev', 'test-matched', 'test-new', None]
    """
    name = name.lower().replace("_", "-")
    if name.startswith(TEST_SET) and name != TEST_SET:
        return name
    return SPLIT_NAMES.get(name.removesuffix("-matched"))


def split_files(folder: Path) -> dict[str, Path]:
    """The file of each split in a folder, in the order train, dev, test, further test sets by name."""
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
    return {split: found[split] for split in sorted(found, key=split_place)}


def split_place(split: str) -> tuple[int, str]:
    """Where a split stands among others: train, dev, test, then test sets by name."""
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"the folder cannot be listed: {error.strerror}", path=folder) from None


def _read_table(path: Path) -> Table:
    return Table(str(path), tuple(read_rows(path)))


def _bare_name(path: Path) -> str:
    """The file name up to its format and compression: `my.data.csv.gz` gives `my.data`."""
    name = path.name
    suffix = Path(name).suffix.lower()
    if suffix in COMPRESSIONS:
        name = name[: -len(suffix)]
    suffix = Path(name).suffix.lower()
    return name[: -len(suffix)] if suffix in ROW_SUFFIXES else name


def _not_there(place: Path) -> InputError:
    folder = place.parent
    close = nearest(place.name, [entry.name for entry in _entries(folder)]) if folder.is_dir() else None
    return InputError(
        "no such file or folder", path=place, hint=f"did you mean {str(folder / close)!r}?" if close else None
    )
