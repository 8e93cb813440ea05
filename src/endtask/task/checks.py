"""Checks of ids and labels before training; each error is one line that names file and row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from endtask.errors import InputError, nearest
from endtask.records import Example

_DELIMITERS = (";", "|", ",")
"""What several labels in one field are often joined by."""

Splits = Mapping[str, Sequence[Example]]


def check_ids(splits: Splits) -> None:
    """No id occurs twice in a split."""
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
    """The sign that joins a label of parts that other labels have too.

    >>> _joins("food;sport", ["sport;space", "food"]), _joins("a, b", ["a"])
    (';', None)
    """
    for sign in _DELIMITERS:
        parts = {part.strip() for one in known for part in one.split(sign)}
        if sign in label and all(part.strip() in parts for part in label.split(sign)):
            return sign
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
