"""Turn rows of a table into examples: detect the task type, read texts and labels, check ids and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from endtask.errors import InputError, a_few, nearest
from endtask.io.tables import Row
from endtask.records import Example
from endtask.registry import task_types
from endtask.task.columns import Columns, WrongCell, as_class, is_list, is_missing
from endtask.task.table import Table

_DELIMITERS = (";", "|", ",", "/", "\t")
"""What often joins several labels of one cell."""
_ROWS_SHOWN = 3


def detect_type(requested: str, columns: Columns, train: Table, *, label_delimiter: str | None = None) -> str:
    """Return the requested task type, or for `auto` the one that fits the columns and the labels of train."""
    if requested != "auto":
        return requested
    labels = {number: row.get(columns.label) for number, row in train.rows} if columns.label else {}
    given = {number: label for number, label in labels.items() if not is_missing(label)}
    types = sorted(map(task_types.get, task_types.names()), key=lambda found: found.detection_order)
    return str(next(found.name for found in types if found().detect(columns, train, given, label_delimiter)))


def read_examples(
    table: Table, split: str, columns: Columns, type_name: str, *, label_delimiter: str | None = None
) -> Iterator[Example]:
    """Yield the examples of one split in the order of the rows; texts may be empty, labels may not."""
    task_type = task_types.get(type_name)()
    if label_delimiter is not None:
        _check_delimiter(table, split, columns, type_name, label_delimiter)
    wrong: dict[int, WrongCell] = {}
    for number, row in table.rows:
        try:
            label = task_type.label_cell(row, columns, label_delimiter)
            yield _read_example(row, label, f"{split}-{number}", columns, task_type, table.path, number)
        except WrongCell as found:
            wrong[number] = found  # read on, so that one message names all wrong rows
    if wrong:
        (number, first), *others = wrong.items()
        message = f"{first}{_as_in([row for row, _ in others])}"
        raise InputError(message, path=table.path, row=number, hint=first.hint)


def _as_in(rows: Sequence[int]) -> str:
    """Return which other rows cannot be read.

    >>> _as_in([]), _as_in([7]), _as_in([2, 4, 5, 9])
    ('', '; row 7 cannot be read either', '; 4 more rows cannot be read either: 2, 4, 5, ...')
    """
    if len(rows) < 2:
        return "".join(f"; row {row} cannot be read either" for row in rows)
    return f"; {len(rows)} more rows cannot be read either: {a_few(map(str, rows), _ROWS_SHOWN)}"


def is_empty(example: Example) -> bool:
    """Return whether the text, or the second text of a pair, is blank."""
    return not example.text.strip() or (example.text_pair is not None and not example.text_pair.strip())


def complete(example: Example, label: Any, task_type: Any) -> Example:
    """Return the example with this label as its task type writes it; raises `WrongCell` where something is missing.

    >>> complete(Example("1", "a text", ""), 1.0, task_types.get("text")()).label
    '1'
    """
    task_type.check_example(example, None)
    written = task_type.as_label(label)
    task_type.check_example(example, written)
    same = type(written) is type(example.label) and written == example.label
    return example if same else replace(example, label=written)


def _read_example(
    row: Row, label: Any, default_id: str, columns: Columns, task_type: Any, path: str, number: int
) -> Example:
    tokens = task_type.words(row, columns)
    text = " ".join(tokens) if tokens is not None else _as_text(row, str(columns.text))
    has_pair = columns.text_pair and task_type.second_text != "never"
    example = Example(
        id=_as_id(row, columns.id) if columns.id else default_id,
        text=text,
        label="",
        text_pair=_as_text(row, str(columns.text_pair)) if has_pair else None,
        tokens=tokens,
        group=_as_id(row, columns.group) if columns.group else None,
        path=path,
        row=number,
    )
    # A row without text is dropped later whatever its label is, so its label is not checked.
    return example if is_empty(example) else complete(example, label, task_type)


def _as_text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        found = "missing" if value is None else f"of type {type(value).__name__}, not a string"
        raise WrongCell(f"the text in column {column!r} is {found}")
    return value


def _as_id(row: Row, column: str) -> str:
    value = row.get(column)
    if is_missing(value) or not isinstance(value, str | int | float):
        raise WrongCell(f"column {column!r} holds {value!r}, not a name or number")
    return as_class(value)


def _check_delimiter(table: Table, split: str, columns: Columns, type_name: str, delimiter: str) -> None:
    """Raise where the delimiter separates nothing: each cell would be a label of its own, and be scored."""
    key = "task.label_delimiter"
    if not task_types.get(type_name).splits_cells:
        raise InputError(f"has no meaning for a task of type {type_name!r}", key=key, hint="it is for type multilabel")
    cells = [row.get(str(columns.label)) for _, row in table.rows]
    strings = [cell for cell in cells if isinstance(cell, str) and cell.strip() and not is_list(cell)]
    if split != "train" or not strings or any(delimiter in cell for cell in strings):
        return
    other = next((sign for sign in _DELIMITERS if any(sign in cell for cell in strings)), None)
    hint = f"did you mean {other!r}?" if other else "type 'text' is for one label in each row"
    raise InputError(f"no row of column {columns.label!r} holds {delimiter!r}", path=table.path, key=key, hint=hint)


Splits = Mapping[str, Sequence[Example]]


def check_ids(splits: Splits) -> None:
    """Raise an InputError for an id that occurs twice in a split."""
    for examples in splits.values():
        first_with_id: dict[str, Example] = {}
        for example in examples:
            first = first_with_id.setdefault(example.id, example)
            if first is not example:
                raise InputError(
                    f"row {first.row} has the id {example.id!r} already",
                    path=example.path or None,
                    row=example.row or None,
                    hint="ids are unique in a split; name another column with task.columns.id",
                )


def check_labels(splits: Splits, task_type: Any) -> None:
    """Raise where train has nothing to learn, or dev or test have a class that train does not have."""
    train = splits["train"]
    values = task_type.label_values(train)
    if len(values) < 2:
        what = task_type.label_noun
        found = f"only one {what}, {next(iter(values))!r}" if values else f"no {what} at all"
        raise InputError(
            f"train has {found}: there is nothing to learn",
            path=train[0].path or None,
        )
    if task_type.labels_of_train_only:
        for split in ("dev", "test"):
            _check_known(splits.get(split, ()), split, sorted(str(value) for value in values))


def _check_known(examples: Sequence[Example], split: str, known: Sequence[str]) -> None:
    names = set(known)
    unknown = [example for example in examples if example.label not in names]
    if not unknown:
        return
    first = unknown[0]
    raise InputError(
        f"the label {first.label!r} does not occur in train;"
        f" {len(unknown):,} of {len(examples):,} {split} rows have such labels",
        path=first.path or None,
        row=first.row or None,
        hint=_unknown_hint(str(first.label), known, all_unknown=len(unknown) == len(examples)),
    )


def _joins(label: str, known: Sequence[str]) -> str | None:
    """Return the delimiter of a label whose parts other labels have too.

    >>> _joins("food;sport", ["sport;space", "food"]), _joins("a, b", ["a"])
    (';', None)
    """
    for delimiter in _DELIMITERS[:3]:
        parts = {part.strip() for name in known for part in name.split(delimiter)}
        if delimiter in label and all(part.strip() in parts for part in label.split(delimiter)):
            return delimiter
    return None


def _unknown_hint(label: str, known: Sequence[str], *, all_unknown: bool) -> str:
    close = nearest(label, known)
    if delimiter := _joins(label, known):
        return f"several labels of one text? --set 'task.label_delimiter={delimiter}'"
    if all_unknown and len(known) > 10:
        return "the splits share no class, so no classifier can learn them"
    if close:
        return f"did you mean {close!r}?"
    return f"train has {', '.join(known)}" if len(known) <= 10 else f"train has {len(known)} classes"
