"""Checks of ids and labels before training; each error is one line that names file and row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from endtask.config import TaskKind
from endtask.errors import InputError, nearest
from endtask.records import Example

_DELIMITERS = (";", "|", ",")
"""Usual delimiters of several labels in one cell."""

Splits = Mapping[str, Sequence[Example]]


def label_names(train: Sequence[Example], kind: TaskKind) -> tuple[str, ...]:
    """Return the sorted classes (kind `tags`: tags) of train; empty for scores."""
    if kind in ("tags", "labels"):
        tagged = (example.label for example in train if isinstance(example.label, tuple))
        return tuple(sorted({tag for tags in tagged for tag in tags}))
    return tuple(sorted({example.label for example in train if isinstance(example.label, str)}))


def check_ids(splits: Splits) -> None:
    """Raise an InputError if an id occurs twice in a split."""
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


def check_labels(splits: Splits, kind: TaskKind) -> None:
    """Raise an InputError if train has fewer than two labels, or if dev or test has a class that train lacks."""
    train = splits["train"]
    values = {example.label for example in train} if kind == "score" else label_names(train, kind)
    if len(values) < 2:
        noun = {"score": "score", "tags": "tag", "labels": "label"}.get(kind, "class")
        found = f"only one {noun}, {next(iter(values))!r}" if values else f"no {noun} at all"
        raise InputError(
            f"train has {found}: there is nothing to learn",
            path=train[0].path or None,
        )
    if kind in ("text", "pair"):
        for split in ("dev", "test"):
            _check_known(splits.get(split, ()), split, [str(value) for value in values])


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


def _likely_delimiter(label: str, known: Sequence[str]) -> str | None:
    """Return the delimiter at which a label splits into parts that other labels have too.

    >>> _likely_delimiter("food;sport", ["sport;space", "food"]), _likely_delimiter("a, b", ["a"])
    (';', None)
    """
    for delimiter in _DELIMITERS:
        parts = {part.strip() for name in known for part in name.split(delimiter)}
        if delimiter in label and all(part.strip() in parts for part in label.split(delimiter)):
            return delimiter
    return None


def _unknown_hint(label: str, known: Sequence[str], *, all_unknown: bool) -> str:
    close = nearest(label, known)
    if delimiter := _likely_delimiter(label, known):
        return f"several labels of one text? --set 'task.label_delimiter={delimiter}'"
    if all_unknown and len(known) > 10:
        return "the splits share no class, so no classifier can learn them"
    if close:
        return f"did you mean {close!r}?"
    return f"train has {', '.join(known)}" if len(known) <= 10 else f"train has {len(known)} classes"
