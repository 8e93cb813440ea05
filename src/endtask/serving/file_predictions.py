"""Predict for the rows of a file in constant memory: batches of similar lengths, answers in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.progress import bar
from endtask.records import batched
from endtask.serving.predictor import Answer, Predictor, Text
from endtask.serving.table_output import check_output, table_writer
from endtask.serving.text_files import FileText, file_texts

_WINDOW = 32
"""Batches that are read at once and sorted by length."""


def predict_file(
    predictor: Predictor,
    file: Path,
    target: Path,
    *,
    run: Path,
    column: str | None = None,
    pair_column: str | None = None,
    batch_size: int = 32,
    raw_cells: bool = False,
) -> int:
    """Write the rows of a file with their predictions to a new file; returns the number of rows."""
    check_output(target)
    texts = file_texts(file, predictor, run, column=column, pair_column=pair_column)
    count = 0
    with table_writer(target, raw_cells=raw_cells) as write, bar("predict", None) as advance:
        prefix: str | None = None
        for window in batched(texts, batch_size * _WINDOW):
            answers = predict_by_length(predictor, [item.text for item in window], batch_size)
            rows = []
            for item, answer in zip(window, answers, strict=True):
                cells = answer.columns()
                if prefix is None:
                    prefix = _prefix(item.row, cells)
                rows.append((item.number, _joined(item, cells, prefix, file)))
            write(rows)
            count += len(rows)
            advance(len(rows))
    return count


def stream_by_length(
    predictor: Predictor, texts: Iterable[FileText], batch_size: int
) -> Iterator[tuple[FileText, Answer]]:
    """Yield each text with its prediction in the order of the file."""
    for window in batched(texts, batch_size * _WINDOW):
        yield from zip(window, predict_by_length(predictor, [item.text for item in window], batch_size), strict=True)


def predict_by_length(predictor: Predictor, texts: Sequence[Text], batch_size: int) -> list[Answer]:
    """Return the predictions for texts in their order; batches have texts of similar length, to save padding."""
    order = sorted(range(len(texts)), key=lambda index: _length(texts[index]))
    found: dict[int, Answer] = {}
    for batch in batched(order, batch_size):
        found |= zip(batch, predictor.predict([texts[index] for index in batch], batch_size=batch_size), strict=True)
    return [found[index] for index in range(len(texts))]


def _length(text: Text) -> tuple[bool, int]:
    """Return a sort key: the kind of text, since a batch has texts or pairs, then the characters."""
    return isinstance(text, str), len(text) if isinstance(text, str) else sum(map(len, text))


def _prefix(row: Mapping[str, Any], cells: Mapping[str, Any]) -> str:
    """Return what distinguishes the new columns from those of the file; nothing where no name is in both.

    >>> _prefix({"text": "a"}, {"label": "b"}), _prefix({"label": "a"}, {"label": "b"})
    ('', 'predicted_')
    """
    prefix = ""
    while any(prefix + name in row for name in cells):
        prefix += "predicted_"
    return prefix


def _joined(item: FileText, cells: Mapping[str, Any], prefix: str, file: Path) -> dict[str, Any]:
    clash = next((prefix + name for name in cells if prefix + name in item.row), None)
    if clash is not None:
        message = f"the row has a key {clash!r} that the first row does not have, and that a prediction needs"
        raise InputError(message, path=file, row=item.number, key=clash)
    return {**item.row, **{prefix + name: value for name, value in cells.items()}}
