"""Tables of folders with a folder of text files for each class: `pos/1.txt`, or `train/pos/1.txt`."""

from __future__ import annotations

from pathlib import Path

from endtask.errors import InputError
from endtask.io.compression import bare_suffix
from endtask.io.input_files import Note, ReadOptions
from endtask.io.lines import lines_of
from endtask.task.table import Table, split_of, split_order

_TEXT_SUFFIXES = (".txt", ".text", ".md", "")
_WITHOUT_CLASS = ("unsup", "unsupervised", "unlabelled", "unlabeled")
"""Folders of texts whose class is not known, as in IMDB."""

ClassFolders = dict[str, dict[str, list[Path]]]
"""The text files of each class of each split."""


def find_class_folders(folder: Path) -> ClassFolders:
    """Return the text files by split and class, empty without any; a folder without folders of splits is train."""
    splits = {split: entry for entry in _folders(folder) if (split := split_of(entry.name)) is not None}
    found = {split: _classes(splits[split]) for split in sorted(splits, key=split_order)} or {"train": _classes(folder)}
    found = {split: classes for split, classes in found.items() if classes}
    return found if len(found.get("train", ())) > 1 else {}


def class_tables(folder: Path, found: ClassFolders, note: Note) -> dict[str, Table]:
    """Read the files: rows with `text`, `label` and `id`, which is the path of the file."""
    _note_unread(folder, found, note)
    return {split: _table(folder, classes, note) for split, classes in found.items()}


def _table(folder: Path, classes: dict[str, list[Path]], note: Note) -> Table:
    files = [(name, file) for name, paths in classes.items() for file in paths]
    rows = []
    for number, (name, file) in enumerate(files, start=1):
        text = "\n".join(line for _, line in lines_of(file, ReadOptions(note=note))).strip()
        identifier = file.relative_to(folder).as_posix()
        rows.append((number, {"id": identifier, "text": text, "label": name}))
    return Table(str(folder), tuple(rows))


def _classes(folder: Path) -> dict[str, list[Path]]:
    """Return the text files of each folder in a folder, by name; at any depth below the class."""
    found = {}
    for entry in _folders(folder):
        files = sorted(path for path in entry.rglob("*") if _is_text(path, entry))
        if files and entry.name.lower() not in _WITHOUT_CLASS:
            found[entry.name] = files
    return found


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"the folder cannot be listed: {error.strerror}", path=folder) from None


def _is_text(path: Path, folder: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    suffix = bare_suffix(path)
    return path.is_file() and not is_hidden and (suffix in _TEXT_SUFFIXES or suffix[1:].isdigit())


def _note_unread(folder: Path, found: ClassFolders, note: Note) -> None:
    """Report the files that are in no class, or are no text files."""
    read = {file for classes in found.values() for files in classes.values() for file in files}
    paths = (path for path in folder.rglob("*") if path.is_file())
    unread = sorted(
        path.relative_to(folder).as_posix()
        for path in paths
        if path not in read and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if unread:
        count = "1 file" if len(unread) == 1 else f"{len(unread):,} files"
        shown = ", ".join(unread[:5]) + (", ..." if len(unread) > 5 else "")
        note(f"{count} of {folder.name} not read, in no folder of a class: {shown}")
