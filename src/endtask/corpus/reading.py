"""The documents of one source, whole and in order, whatever they are stored in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from endtask.corpus.sources import DOCSTRINGS, Source, SourceFile, is_text_file
from endtask.errors import InputError, did_you_mean
from endtask.io.compression import ReadProgress
from endtask.io.digests import file_digest, file_size
from endtask.io.tables import Row, find_column, read_lines, read_rows

COLUMN = "links"
Links = tuple[tuple[int, int], ...]


def read_links(value: Any, text: str, *, path: Path | str, row: int) -> Links:
    """The spans of a row in order; white space at their ends is left out, and so is a span of nothing else.

    >>> read_links([[6, 9], [0, 3]], "one   two ", path="a.jsonl", row=1)
    ((0, 3), (6, 9))
    """
    if value is None:
        return ()
    spans = sorted(_span(entry, text, path, row) for entry in _list(value, path, row))
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            raise InputError(f"column {COLUMN!r}: the span at {start} overlaps the one before it", path=path, row=row)
    trimmed = (_trimmed(text, start, end) for start, end in spans)
    return tuple((start, end) for start, end in trimmed if start < end)


def links_inside(links: Links, start: int, end: int) -> Links:
    """The links that lie wholly between two places of the text, counted from the first; half an anchor is none.

    >>> links_inside(((0, 3), (6, 9), (8, 12)), 5, 11)
    ((1, 4),)
    """
    return tuple((first - start, last - start) for first, last in links if start <= first and last <= end)


def _list(value: Any, path: Path | str, row: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _not_spans(f"is of type {type(value).__name__}", path, row)
    return list(value)


def _span(entry: Any, text: str, path: Path | str, row: int) -> tuple[int, int]:
    if not isinstance(entry, list | tuple) or len(entry) != 2 or any(type(place) is not int for place in entry):
        raise _not_spans(f"holds {str(entry)[:40]!r}", path, row)
    start, end = entry
    if not 0 <= start < end <= len(text):
        raise _not_spans(f"holds [{start}, {end}] in a text of {len(text)} characters", path, row)
    return start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _not_spans(what: str, path: Path | str, row: int) -> InputError:
    return InputError(
        f"column {COLUMN!r} {what}", path=path, row=row, hint="links are [[start, end], ...] in characters of the text"
    )


TEXT_COLUMNS = ("text", "content", "body", "abstract", "passage", "document", "sentence")
_BLOCK = 1 << 20  # characters of a text file held at once


class Reading(NamedTuple):
    """One document before it is cut; `parts` follow each other; `place` is unique inside the source."""

    id: str
    place: str
    parts: Iterable[str]
    title: str | None = None
    license: str | None = None
    links: Links = ()


def read_source(source: Source, progress: ReadProgress | None = None, *, with_links: bool = False) -> Iterator[Reading]:
    """Stream the documents of a source; `progress` is told how many more bytes of its files were read.

    Only with `with_links` is the column of that name looked at: elsewhere it may hold anything.
    """
    if source.path == DOCSTRINGS:
        yield from _docstrings(source)
    elif not source.files:
        yield from _hub(source, with_links)
    for file in source.files:
        if is_text_file(file.path):
            blocks = _blocks(file.path, progress)
            yield Reading(f"{source.name}/{file.label}", file.label, blocks, license=source.license)
        else:
            yield from _table(source, file, progress, with_links)


def _table(source: Source, file: SourceFile, progress: ReadProgress | None, with_links: bool) -> Iterator[Reading]:
    column: str | None = None
    for number, row in read_rows(file.path, progress):
        column = column or _text_column(source, row, file.path)
        reading = _from_row(source, row, column, file.path, number, f"{file.label}#{number}")
        yield _linked(reading, row, column, file.path, number) if with_links else reading


def _hub(source: Source, with_links: bool) -> Iterator[Reading]:
    from endtask.corpus.hub import hub_rows

    column: str | None = None
    for number, row in hub_rows(source.path):
        column = column or _text_column(source, row, source.path)
        reading = _from_row(source, row, column, source.path, number, str(number))
        yield _linked(reading, row, column, source.path, number) if with_links else reading


def _docstrings(source: Source) -> Iterator[Reading]:
    from endtask.corpus.docstrings import docstring_documents

    for document in docstring_documents():
        name, license = _in_source(source, document.id), document.license or source.license
        yield Reading(name, document.id, (document.text,), document.title, license)


def _from_row(source: Source, row: Row, column: str, path: Path | str, number: int, place: str) -> Reading:
    text = row.get(column)
    if not isinstance(text, str):
        raise _not_a_text(row, column, path, number)
    given_id = row.get("id")
    name = _in_source(source, place if given_id is None or given_id == "" else str(given_id))
    license = _optional(row.get("license")) or _optional(row.get("license")) or source.license
    return Reading(name, place, (text,), _optional(row.get("title")), license)


def _linked(reading: Reading, row: Row, column: str, path: Path | str, number: int) -> Reading:
    return reading._replace(links=read_links(row.get(COLUMN), row[column], path=path, row=number))


def _in_source(source: Source, given_id: str) -> str:
    prefix = f"{source.name}/"
    return given_id if given_id.startswith(prefix) else prefix + given_id


def _optional(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def _text_column(source: Source, row: Row, path: Path | str) -> str:
    columns = list(row)
    column = find_column(columns, source.text, TEXT_COLUMNS, path=path, role="text")
    if column is None:
        raise InputError(
            f"no column for the text among {', '.join(columns) or 'none'}",
            path=path,
            key="corpus.sources",
            hint=f"name it beside the path: corpus.sources=[{{path: {path}, text: COLUMN}}]",
        )
    return column


def _not_a_text(row: Row, column: str, path: Path | str, number: int) -> InputError:
    if column not in row:
        return InputError(f"no column {column!r}", path=path, row=number, hint=did_you_mean(column, row))
    kind = "null" if row[column] is None else f"of type {type(row[column]).__name__}"
    return InputError(f"column {column!r} is {kind}, not a text", path=path, row=number)


def _blocks(path: Path, progress: ReadProgress | None) -> Iterator[str]:
    """A text file in blocks that end between paragraphs where there are any, so that any size can be read."""
    lines: list[str] = []
    size = 0
    for _, line in read_lines(path, progress):
        lines.append(line)
        size += len(line) + 1
        if size > 2 * _BLOCK or (size > _BLOCK and not line.strip()):
            yield "\n".join(lines)
            lines, size = [], 0
    yield "\n".join(lines)


def source_contents(source: Source) -> dict[str, Any]:
    """All that decides which documents a source gives."""
    head = {"name": source.name, "text": source.text, "license": source.license}
    if source.path == DOCSTRINGS:
        from endtask.corpus.docstrings import docstring_fingerprint

        return {**head, "docstrings": docstring_fingerprint()}
    if not source.files:
        from endtask.corpus.hub import hub_digests

        return {**head, "hub": hub_digests(source.path)}
    files = [[file.label, file_size(file.path), file_digest(file.path)] for file in source.files]
    return {**head, "files": files}
