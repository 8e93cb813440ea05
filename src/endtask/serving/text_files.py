"""Read the texts of a file to predict for: rows of a table, or the lines of a text file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.compression import bare_suffix
from endtask.io.lines import read_lines
from endtask.io.parsing import parse_json
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.tables import find_column, read_rows, row_format, row_suffixes
from endtask.progress import warn
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
    """Yield the texts of a file in order, streaming; a file that is neither rows nor lines is an `InputError`.

    Warns at the end of a file without texts, and of texts without a character, whose predictions say nothing.
    """
    count = empty = 0
    for found in _texts_in(file, predictor, run, column, pair_column):
        count += 1
        empty += _is_blank(found.text)
        yield found
    if not count:
        warn(f"{file}: no texts, so nothing was predicted")
    if empty:
        warn(f"{file}: {empty:,} of {count:,} texts are empty; their predictions say nothing")


def _is_blank(text: Text) -> bool:
    parts = (text,) if isinstance(text, str) else text
    return not any(part.strip() for part in parts)


def _texts_in(
    file: Path, predictor: Predictor, run: Path, column: str | None, pair_column: str | None
) -> Iterator[FileText]:
    check_readable(file)
    single = predictor.takes_pairs is False  # a model of single texts ignores TABs and second columns
    if row_format(file) is None:
        for number, line in read_lines(file):
            if number == 1:
                _check_is_text(line, file, columns_of(run))
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


def _check_is_text(line: str, file: Path, own: Mapping[str, str | None]) -> None:
    """Raise for the first line of another format in a file whose name promises a text per line."""
    names = {"text", *(name for name in own.values() if name)}
    if line.startswith("%PDF-") or "\0" in line:
        raise InputError("not a text file, so nothing was predicted", path=file, row=1)
    if line.startswith("{") and _is_json_object(line):
        raise InputError("JSON lines, not a text per line", path=file, row=1, hint=f"name it {file.stem}.jsonl")
    for delimiter, suffix in ((",", ".csv"), (";", ".csv"), ("\t", ".tsv")):
        cells = [cell.strip().strip('"') for cell in line.split(delimiter)]
        if len(cells) > 1 and names & set(cells):
            hint = f"name it {file.stem}{suffix}"
            raise InputError(f"the header of a table ({', '.join(cells)}), not a text", path=file, row=1, hint=hint)


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False


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
