"""Read the documents of a source in order, from text files, tables, the hub or installed documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from endtask.corpus.sources import DOCSTRINGS, HUB_PREFIX, Source, is_text_file
from endtask.errors import InputError, did_you_mean, nearest
from endtask.io.compression import ReadProgress
from endtask.io.digests import file_digest, file_size
from endtask.io.tables import Row, find_column, read_lines, read_rows

TEXT_COLUMNS = ("text", "content", "body", "abstract", "passage", "document", "sentence")
LINKS_COLUMN = "links"
_BLOCK_CHARACTERS = 1 << 20

Links = tuple[tuple[int, int], ...]
"""Character spans (start, end) of a text, in order and without overlap."""


class SourceDocument(NamedTuple):
    """A document before it is cut into passages: the text is the concatenation of `parts`.

    `location` is the file and row, unique inside the source.
    """

    id: str
    location: str
    parts: Iterable[str]
    title: str | None = None
    license: str | None = None
    links: Links = ()


def read_source(
    source: Source, progress: ReadProgress | None = None, *, with_links: bool = False
) -> Iterator[SourceDocument]:
    """Stream the documents of a source; calls `progress` with the number of bytes read since the last call.

    Reads the column `links` only with `with_links`: in other corpora a column of that name may hold anything.
    """
    if source.path == DOCSTRINGS:
        yield from _read_docstrings(source)
    elif not source.files:
        from endtask.corpus.reading import hub_rows

        yield from _read_rows(source, hub_rows(source.path), source.path, "", with_links)
    for file in source.files:
        if is_text_file(file.path):
            blocks = _text_blocks(file.path, progress)
            yield SourceDocument(f"{source.name}/{file.label}", file.label, blocks, license=source.license)
        else:
            yield from _read_rows(source, read_rows(file.path, progress), file.path, f"{file.label}#", with_links)


def source_contents(source: Source) -> dict[str, Any]:
    """Return everything that determines the documents of a source: the same for a copy of its files elsewhere."""
    head = {"name": source.name, "text": source.text, "license": source.license}
    if source.path == DOCSTRINGS:
        from endtask.corpus.docstrings import docstring_fingerprint

        return {**head, "docstrings": docstring_fingerprint()}
    if not source.files:
        from endtask.corpus.reading import hub_digests

        return {**head, "hub": hub_digests(source.path)}
    files = [[file.label, file_size(file.path), file_digest(file.path)] for file in source.files]
    return {**head, "files": files}


def _read_docstrings(source: Source) -> Iterator[SourceDocument]:
    from endtask.corpus.docstrings import docstring_documents

    for document in docstring_documents():
        document_id, license = _prefixed(source, document.id), document.license or source.license
        yield SourceDocument(document_id, document.id, (document.text,), document.title, license)


def _read_rows(
    source: Source,
    rows: Iterator[tuple[int, Row]],
    path: Path | str,
    prefix: str,
    with_links: bool,
) -> Iterator[SourceDocument]:
    column: str | None = None
    for number, row in rows:
        if column is None:
            hint = f"name it with the path: corpus.sources=[{{path: {path}, text: COLUMN}}]"
            column = text_column(row, source.text, path=path, key="corpus.sources", hint=hint)
        text = text_cell(row, column, path=path, row_number=number)
        location, given_id = f"{prefix}{number}", row.get("id")
        document_id = _prefixed(source, location if given_id is None or given_id == "" else str(given_id))
        license = _optional(row.get("licence")) or _optional(row.get("license")) or source.license
        links = read_links(row.get(LINKS_COLUMN), text, path=path, row=number) if with_links else ()
        yield SourceDocument(document_id, location, (text,), _optional(row.get("title")), license, links)


def _prefixed(source: Source, given_id: str) -> str:
    prefix = f"{source.name}/"
    return given_id if given_id.startswith(prefix) else prefix + given_id


def _optional(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def text_column(row: Row, named: str | None, *, path: Path | str, key: str, hint: str | None = None) -> str:
    """Return the column of the text: the named one, or the first usual name; raises `InputError` without one."""
    column = find_column(list(row), named, TEXT_COLUMNS, path=path, role="text")
    if column is None:
        close = next((name for name in row if nearest(name, TEXT_COLUMNS)), None)
        hint = hint or (f"rename {close!r} to 'text'" if close else f"known: {', '.join(TEXT_COLUMNS)}")
        raise InputError(f"no column for the text among {', '.join(row) or 'none'}", path=path, key=key, hint=hint)
    return column


def text_cell(row: Row, column: str, *, path: Path | str, row_number: int) -> str:
    """Return the text in a column of a row; raises `InputError` for anything else."""
    text = row.get(column)
    if isinstance(text, str):
        return text
    if column not in row:
        raise InputError(f"no column {column!r}", path=path, row=row_number, hint=did_you_mean(column, row))
    kind = "null" if text is None else f"of type {type(text).__name__}"
    raise InputError(f"column {column!r} is {kind}, not a text", path=path, row=row_number)


def _text_blocks(path: Path, progress: ReadProgress | None) -> Iterator[str]:
    """Yield a text file in blocks, so that files of any size can be read; blocks end between paragraphs if possible."""
    lines: list[str] = []
    size = 0
    for _, line in read_lines(path, progress):
        lines.append(line)
        size += len(line) + 1
        if size > 2 * _BLOCK_CHARACTERS or (size > _BLOCK_CHARACTERS and not line.strip()):
            yield "\n".join(lines)
            lines, size = [], 0
    yield "\n".join(lines)


def read_links(value: Any, text: str, *, path: Path | str, row: int) -> Links:
    """Return the hyperlinks of a row in order, without white space at their ends and without empty ones.

    >>> read_links([[6, 9], [0, 3]], "one   two ", path="a.jsonl", row=1)
    ((0, 3), (6, 9))
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise _not_links(f"is of type {type(value).__name__}", path, row)
    spans = sorted(_span(entry, text, path, row) for entry in value)
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            message = f"column {LINKS_COLUMN!r}: the span at {start} overlaps the one before it"
            raise InputError(message, path=path, row=row)
    trimmed = (_trimmed(text, start, end) for start, end in spans)
    return tuple((start, end) for start, end in trimmed if start < end)


def links_inside(links: Links, start: int, end: int) -> Links:
    """Return the links that lie completely in text[start:end], relative to `start`.

    >>> links_inside(((0, 3), (6, 9), (8, 12)), 5, 11)
    ((1, 4),)
    """
    return tuple((first - start, last - start) for first, last in links if start <= first and last <= end)


def _span(entry: Any, text: str, path: Path | str, row: int) -> tuple[int, int]:
    if not isinstance(entry, list | tuple) or len(entry) != 2 or any(type(index) is not int for index in entry):
        raise _not_links(f"holds {str(entry)[:40]!r}", path, row)
    start, end = entry
    if not 0 <= start < end <= len(text):
        raise _not_links(f"holds [{start}, {end}] in a text of {len(text)} characters", path, row)
    return start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _not_links(problem: str, path: Path | str, row: int) -> InputError:
    hint = "links are [[start, end], ...] in characters of the text"
    return InputError(f"column {LINKS_COLUMN!r} {problem}", path=path, row=row, hint=hint)


def hub_rows(path: str) -> Iterator[tuple[int, Row]]:
    """Yield (row number, row) of `hf:NAME[:CONFIG[:SPLIT]]`; the default split is `train`."""
    datasets = _datasets(path)
    name, config, split = split_address(path)
    with _input_errors(path, datasets):
        rows = datasets.load_dataset(name, config, split=split, streaming=True)
        yield from enumerate(rows, start=1)


def hub_digests(path: str) -> list[list[str]]:
    """Return what identifies the data: addresses with their revision, or name and digest of local files."""
    datasets = _datasets(path)
    name, config, split = split_address(path)
    with _input_errors(path, datasets):
        builder = datasets.load_dataset_builder(name, config)
    files = (builder.config.data_files or {}).get(split, ())
    return [["builder", type(builder).__name__, builder.config.name, split], *map(_digest, files)]


def split_address(path: str) -> tuple[str, str | None, str]:
    """Return name, config and split of a hub address.

    >>> split_address("hf:wikimedia/wikipedia:20231101.simple")
    ('wikimedia/wikipedia', '20231101.simple', 'train')
    """
    name, config, split, *rest = [*path.removeprefix(HUB_PREFIX).split(":"), "", ""]
    if not name or any(rest):
        raise InputError(
            "not an address on the hub",
            path=path,
            hint="write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT",
        )
    return name, config or None, split or "train"


def _digest(address: str) -> list[str]:
    local = Path(address)
    return [local.name, file_digest(local)] if local.is_file() else [address]


def _datasets(path: str) -> Any:
    try:
        import datasets
    except ImportError:
        message = "reading from the hub needs the package `datasets`"
        raise InputError(message, path=path, hint="pip install 'endtask[hub]'") from None
    return datasets


@contextmanager
def _input_errors(path: str, datasets: Any) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be loaded: {reason}", path=path) from None
