"""Read the texts of a file to predict for: rows of a table, or the lines of a text file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.compression import bare_suffix
from endtask.io.lines import read_lines
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.tables import find_column, read_rows, row_format, row_suffixes
from endtask.serving.predictor import Predictor, Text

Row = dict[str, Any]
LINE_SUFFIXES = ("", ".txt", ".text", ".md", ".lines")
"""Files whose lines are texts; a pipe such as /dev/fd/63 has no suffix."""


@dataclass(frozen=True)
class FileText:
    """A text of a file, with the number and the cells of its row."""

    number: int
    row: Row
    text: Text


@dataclass(frozen=True)
class Column:
    """A column to read: the one given by the option, else that of the task's files if present, else the default."""

    option: str
    given: str | None
    trained: str | None
    default: str

    def name_in(self, row: Collection[str]) -> str:
        """Return the column to read in a row."""
        return self.given or (self.trained if self.trained in row else None) or self.default


def split_pair(line: str) -> Text:
    """Return the two texts around the first TAB of a line, or the line.

    >>> split_pair("a\\tb"), split_pair("a b")
    (('a', 'b'), 'a b')
    """
    first, tab, second = line.partition("\t")
    return (first, second) if tab else line


def file_texts(
    file: Path, predictor: Predictor, run: Path, *, column: str | None = None, pair_column: str | None = None
) -> Iterator[FileText]:
    """Yield the texts of a file in order, streaming; a file that is neither rows nor lines is an `InputError`."""
    check_readable(file)
    single = predictor.takes_pairs is False  # a model of single texts ignores TABs and second columns
    if row_format(file) is None:
        for number, line in read_lines(file):
            text: Text = line if single else split_pair(line)
            if predictor.takes_pairs is True and isinstance(text, str):
                raise InputError("no TAB and second text", path=file, row=number, hint="the model takes text pairs")
            cells = {"text": text} if isinstance(text, str) else dict(zip(("text", "text_pair"), text, strict=True))
            yield FileText(number, cells, text)
        return
    tags, own = predictor.task_type.per_token, columns_of(run)
    first = Column("--column", column, own.get("tokens" if tags else "text"), "text")
    second = None if single else Column("--pair-column", pair_column, own.get("text_pair"), "text_pair")
    yield from _table_texts(file, first, second, needs_pair=predictor.takes_pairs is True, tags=tags)


def check_readable(file: Path) -> None:
    """Raise for a file that is neither rows nor lines: it would be taken for texts, a line each."""
    if row_format(file) is not None or bare_suffix(file) in LINE_SUFFIXES:
        return
    lines = " ".join(name for name in LINE_SUFFIXES if name)
    raise InputError(
        "neither rows nor lines of text, so nothing was predicted",
        path=file,
        hint=f"rows: {' '.join(row_suffixes())}; a text per line: {lines}",
    )


def columns_of(run: Path) -> dict[str, str | None]:
    """Return the column names in the settings of a run's task; empty for a model outside a run."""
    from endtask.config.loading import read_tree

    file = (run.parent if run.name == "model" else run) / SETTINGS_FILE
    task = read_tree(file).get("task") if file.is_file() else None
    return task.get("columns") or {} if isinstance(task, dict) else {}


def _table_texts(path: Path, text: Column, pair: Column | None, *, needs_pair: bool, tags: bool) -> Iterator[FileText]:
    """Yield the texts of a table file; those of a tagger may be lists of words, as in its task's files."""
    for number, row in read_rows(path):
        column = replace(text, default="tokens" if tags and "text" not in row else text.default).name_in(row)
        if column not in row:
            find_column(list(row), column, (), path=path, role=f"text, which {text.option} names")
        second, pair_column = None, ""
        if pair is not None:
            pair_column = pair.name_in(row)
            if needs_pair and pair_column not in row:
                others = [name for name in row if name != column]
                find_column(others, pair_column, (), path=path, role=f"second text, which {pair.option} names")
            second = row.get(pair_column)
        content = row[column]
        if tags and _is_word_list(content):
            yield FileText(number, row, content)
            continue
        if not isinstance(content, str) or not isinstance(second, str | None):
            kind = "neither a string nor a list of words" if tags else "not a string"
            raise InputError(f"the text is {kind}", path=path, row=number, key=column)
        if needs_pair and second is None:
            raise InputError("the second text is missing", path=path, row=number, key=pair_column)
        yield FileText(number, row, content if second is None else (content, second))


def _is_word_list(content: Any) -> bool:
    is_list = isinstance(content, list) and bool(content)
    return is_list and all(isinstance(word, str) and word.strip() for word in content)
