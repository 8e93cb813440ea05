"""Read the table of each split: from one file, or a folder with a file per split or a folder per class."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from endtask.corpus.cloud import local_tree
from endtask.errors import InputError, a_few, nearest
from endtask.io.addresses import is_address
from endtask.io.compression import COMPRESSIONS, bare_suffix
from endtask.io.input_files import Note, ReadOptions
from endtask.io.rows.base import RowFormat, row_formats
from endtask.io.rows.conll import is_conll
from endtask.io.tables import known_suffixes, row_format, row_suffixes
from endtask.task.class_folders import class_tables, find_class_folders
from endtask.task.hub_tables import HUB_PREFIX, is_saved_data_set, read_saved_tables
from endtask.task.table import Table, split_of, split_order

_SHOWN = 5


def read_tables(path: str) -> tuple[dict[str, Table], list[str]]:
    """Return the table of each split in a file or folder, and notes for people; a single file is the train split."""
    if not path:
        raise InputError("no task given", key="task.path", hint="a file, a folder, hf:NAME or docstrings")
    source = local_tree(path) if is_address(path) else Path(path)
    notes: list[str] = []
    if not source.exists():
        raise _missing(source)
    if not source.is_dir():
        return {"train": _read_table(source, notes.append)}, notes
    if is_saved_data_set(source):
        return read_saved_tables(source)
    found = _find_splits(source)
    if not found.splits and (folders := find_class_folders(source)):
        return class_tables(source, folders, notes.append), notes
    tables = {split: _read_table(file, notes.append) for split, file in split_files(source).items()}
    return tables, [*dict.fromkeys(notes), *_unread_notes(source, found.unread)]


def task_name(path: str) -> str:
    """Return a short name for the task at a path.

    >>> task_name("data/reviews.csv.gz"), task_name("data/chemprot/"), task_name("hf:owner/rotten:en")
    ('reviews', 'chemprot', 'rotten')
    """
    if path.startswith(HUB_PREFIX):
        return Path(path.removeprefix(HUB_PREFIX).split(":")[0]).name
    source = Path(path)
    return source.resolve().name if source.is_dir() else _bare_name(source) or source.name


def split_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split in a folder, in the order train, dev, test, other test sets by name."""
    found = _find_splits(folder)
    if "train" not in found.splits:
        names = ", ".join([*(file.name for file in found.splits.values()), *found.unread][:10])
        only = f"only {names}" if names else "which has no files"
        hint = f"train with a suffix that is known, or a folder for each class; {known_suffixes(row_suffixes())}"
        raise InputError(f"no train file in this folder, {only}", path=folder, hint=hint)
    return {split: found.splits[split] for split in sorted(found.splits, key=split_order)}


@dataclass
class _FolderFiles:
    """The file of each split, and the names of the other files and folders."""

    splits: dict[str, Path] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def _find_splits(folder: Path) -> _FolderFiles:
    """Return the files of a folder; of several files for a split, the one whose format has the lowest precedence."""
    found = _FolderFiles()
    candidates: dict[str, list[tuple[int, Path]]] = {}
    for entry in _entries(folder):
        split = split_of(_bare_name(entry)) if entry.is_file() else None
        file_format = _format_of(entry) if split is not None else None
        if split is None or file_format is None:
            found.unread.append(f"{entry.name}/" if entry.is_dir() else entry.name)
        else:
            candidates.setdefault(split, []).append((file_format.precedence, entry))
    for split, files in candidates.items():
        (precedence, file), *others = sorted(files)
        if others and others[0][0] == precedence:
            message = f"two files for the {split} split: {file.name} and {others[0][1].name}"
            raise InputError(message, path=folder, hint="keep one of them")
        found.splits[split] = file
        found.unread += [other.name for _, other in others]
    found.unread.sort()
    return found


def _entries(folder: Path) -> list[Path]:
    """Return the files and folders in a folder by name, without hidden ones."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"the folder cannot be listed: {error.strerror}", path=folder) from None


def _format_of(path: Path) -> RowFormat | None:
    """Return the format of a task's file by its name and, where the name may mean several, its content."""
    found = row_format(path)
    if (found is None or bare_suffix(path) == ".tsv") and is_conll(path):
        found = row_formats.get("conll")()
    return found


def _read_table(path: Path, note: Note) -> Table:
    file_format = _format_of(path)
    if file_format is None:
        raise InputError("unknown kind of file", path=path, hint=known_suffixes(row_suffixes()))
    return Table(str(path), tuple(file_format.rows(path, ReadOptions(note=note))))


def _unread_notes(folder: Path, names: list[str]) -> list[str]:
    """Return a note on the files and folders of a task's folder that are not read."""
    if not names:
        return []
    count = "1 file or folder" if len(names) == 1 else f"{len(names):,} files or folders"
    return [f"{count} of {folder.name} not read, named after no split: {a_few(names, _SHOWN)}"]


def _bare_name(path: Path) -> str:
    """Return the file name without format and compression: `my.data` of `my.data.csv.gz`."""
    name = path.name
    suffix = Path(name).suffix.lower()
    if suffix in COMPRESSIONS:
        name = name[: -len(suffix)]
    suffix = Path(name).suffix.lower()
    return name[: -len(suffix)] if suffix in (*row_suffixes(), ".txt") else name


def _missing(path: Path) -> InputError:
    folder = path.parent
    close = nearest(path.name, [entry.name for entry in _entries(folder)]) if folder.is_dir() else None
    return InputError(
        "no such file or folder", path=path, hint=f"did you mean {str(folder / close)!r}?" if close else None
    )
