"""Dev and test rows whose text is in train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from endtask.records import Example
from endtask.task.task import Task
from endtask.task.text_keys import normalized_key, normalized_texts

TextKey = tuple[str, frozenset[str]]
"""What two rows are compared by: a role ("text", "pair", "side") and the normalised texts in it."""


def leaked_ids(task: Task, split: str = "test", *, siblings: Iterable[Task] = ()) -> frozenset[str]:
    """Return the ids of a split's examples whose normalised text (and second text) is in train.

    The leak-free score leaves these examples out. They include all verbatim copies. The train splits of the task's
    auxiliary tasks and of `siblings` count too.
    """
    own_train = {normalized_key(example) for example in task.train}
    other_train = {
        key for other in (*task.auxiliary.values(), *siblings) for row in other.train for key in train_keys(row)
    }
    return frozenset(
        example.id
        for example in task.splits.get(split, ())
        if normalized_key(example) in own_train or (other_train and not other_train.isdisjoint(eval_keys(example)))
    )


def sibling_tasks(task: Task, name: str) -> tuple[Task, ...]:
    """Return the tasks that share the encoder with one auxiliary task: the end task and the other auxiliary tasks."""
    return replace(task, auxiliary={}), *(other for key, other in task.auxiliary.items() if key != name)


def leaks_between(task: Task) -> Iterator[str]:
    """Yield a sentence for each task whose train texts occur in dev or test of another task.

    Labels of one task may reveal those of another.
    """
    tasks = {"the task": task, **task.auxiliary}
    for name, evaluated in tasks.items():
        rows = (row for split in ("dev", "test") for row in evaluated.splits.get(split, ()))
        keys = {key for row in rows for key in eval_keys(row)}
        for other, trained in tasks.items():
            if other == name:
                continue
            count = len({normalized_key(row) for row in trained.train if not keys.isdisjoint(train_keys(row))})
            if count:
                texts = f"{count:,} {'text' if count == 1 else 'texts'}"
                yield f"{texts} of train of {other} {'is' if count == 1 else 'are'} in dev or test of {name}"


def train_keys(example: Example) -> set[TextKey]:
    """Return the keys by which a train row can leak into another task: its text, or its pair and each side of it."""
    texts = normalized_texts(example)
    if len(texts) == 1:
        return {("text", frozenset(texts))}
    return {("pair", frozenset(texts)), *(("side", frozenset({text})) for text in texts)}


def eval_keys(example: Example) -> set[TextKey]:
    """Return the keys that leak a dev or test row: its text, alone or as one side of a pair; its pair; either side.

    Two pairs that share one side do not match: every text of a task may come with the same aspect or question.
    """
    texts = normalized_texts(example)
    if len(texts) == 1:
        return {("text", frozenset(texts)), ("side", frozenset(texts))}
    return {("pair", frozenset(texts)), *(("text", frozenset({text})) for text in texts)}
