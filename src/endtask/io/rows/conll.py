"""CoNLL files: a word and its tag on each line, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, open_bytes
from endtask.io.input_files import InputFile, ReadOptions
from endtask.io.lines import lines_of
from endtask.io.rows.base import NumberedRows, RowFormat, row_formats

DOCUMENT_START = "-DOCSTART-"
_COMMENT = re.compile(r"#\s*(\w+ = |id \S)")
_SPAN_TAG = re.compile(r"O|[BIESLUM]-\S+")
_SAMPLED_BYTES = 1 << 16
_HINT = "a word and its tag on each line, a blank line after each sentence"


@row_formats.register("conll")
class Conll(RowFormat):
    """Sentences as lists `tokens` (the first column) and `tags` (the last); columns are separated by tabs or blanks."""

    suffixes: ClassVar[tuple[str, ...]] = (".conll", ".iob", ".iob2", ".bio")
    has_text = False

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the sentences, numbered by their first lines."""
        for sentence in _sentences(path, options):
            number = sentence[0][0]
            tokens, tags = [cells[0] for _, cells in sentence], [cells[-1] for _, cells in sentence]
            yield number, {"tokens": tokens, "tags": tags}


def is_conll(path: InputFile) -> bool:
    """Return whether all lines of a file's start are blank, comments, or words with a tag such as `B-place` or `O`."""
    try:
        with open_bytes(path) as file:
            *lines, _ = file.read(_SAMPLED_BYTES).decode("utf-8-sig", errors="replace").split("\n")
    except (InputError, *READ_FAILURES):
        return False
    words = [cells for line in lines if (cells := _cells(line.rstrip("\r")))]
    return bool(words) and all(len(cells) > 1 and _SPAN_TAG.fullmatch(cells[-1]) for cells in words)


def _sentences(path: InputFile, options: ReadOptions) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the lines of each sentence as (line number, cells)."""
    sentence: list[tuple[int, list[str]]] = []
    width: int | None = None
    is_broken = False
    for number, line in lines_of(path, options):
        if not line.strip():
            if sentence and not is_broken:
                yield sentence
            sentence, is_broken = [], False
            continue
        cells = _cells(line)
        if cells is None:
            continue
        width = width or len(cells)
        if len(cells) != width or len(cells) < 2:
            options.on_error(_wrong_columns(cells, width, path, number))
            is_broken = True
        sentence.append((number, cells))
    if sentence and not is_broken:
        yield sentence


def _wrong_columns(cells: list[str], width: int, path: InputFile, number: int) -> InputError:
    count = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
    message = count if len(cells) == width else f"{count} where earlier lines have {width}"
    return InputError(message, path=path, row=number, hint=_HINT)


def _cells(line: str) -> list[str] | None:
    """Return the columns of a line; None for comments, document starts and blank lines."""
    if not line.strip() or line.startswith(DOCUMENT_START) or _COMMENT.match(line):
        return None
    return line.split("\t") if "\t" in line else line.split()
