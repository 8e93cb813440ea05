"""Labelled rows for an evaluation, read like those of the task: from a file, or from memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from endtask.api.cells import plain_row
from endtask.api.tables import splits_of
from endtask.config import TaskSettings
from endtask.errors import InputError, did_you_mean
from endtask.progress import warn
from endtask.records import Example
from endtask.registry import task_types
from endtask.reporting import format as shown
from endtask.task.columns import find_columns, require_columns
from endtask.task.examples import check_ids, is_empty, read_examples
from endtask.task.spans import as_tagged_words
from endtask.task.split_tables import read_tables
from endtask.task.table import Table

SPLIT = "test"


def read_labelled(data: Any, settings: TaskSettings, type_name: str, labels: Sequence[str]) -> tuple[Example, ...]:
    """Return the examples of a table, or of the test split of several; rows without text are left out.

    `labels` are those that the model can predict; a class that is none of them raises `InputError`.
    """
    table, wanted = _table(data), settings.columns
    if task_types.get(type_name).per_token:
        tables, wanted, _ = as_tagged_words({"train": table}, settings)
        table = tables["train"]
    missing = [role for role in ("id", "group") if getattr(wanted, role) not in (None, *table.columns)]
    columns = find_columns(table.columns, wanted.model_copy(update=dict.fromkeys(missing)), table.path)
    require_columns(columns, type_name, table.columns, table.path)
    found = tuple(read_examples(table, SPLIT, columns, type_name, label_delimiter=settings.label_delimiter))
    examples = tuple(example for example in found if not is_empty(example))
    if left_out := len(found) - len(examples):
        warn(f"{table.path}: {shown.plural(left_out, 'row')} without text left out")
    if not examples:
        raise InputError("no rows with text", path=table.path)
    check_ids({SPLIT: examples})
    if task_types.get(type_name).labels_of_train_only:
        _check_known(examples, labels)
    return examples


def _table(data: Any) -> Table:
    if isinstance(data, str | Path):
        tables, notes = read_tables(str(data))
        for note in notes:
            warn(note)
        return _only(tables, str(data))
    tables = {}
    for split, rows in splits_of(data, needs_train=False).items():
        name = "data" if split == "train" else f"data[{split!r}]"
        plain = (plain_row(row, path=name, number=number) for number, row in enumerate(rows, start=1))
        tables[split] = Table(name, tuple(enumerate(plain, start=1)))
    return _only(tables, "data")


def _only(tables: dict[str, Table], name: str) -> Table:
    """Return the only table, or the test split of several."""
    if len(tables) == 1:
        return next(iter(tables.values()))
    if SPLIT not in tables:
        raise InputError(f"no test split, only {', '.join(tables)}", path=name, hint="give one table")
    return tables[SPLIT]


def _check_known(examples: Sequence[Example], labels: Sequence[str]) -> None:
    for example in examples:
        if example.label not in labels:
            message = f"the label {example.label!r} is not one of the model"
            hint = did_you_mean(str(example.label), labels)
            raise InputError(message, path=example.path or None, row=example.row or None, hint=hint)
