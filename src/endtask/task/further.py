"""Further tasks that share the body with the end task: read with it, and looked at for leaks between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from endtask.errors import InputError
from endtask.settings import Settings, TaskSettings
from endtask.task.normalize import normalized_key
from endtask.task.task import Task


def read_all(settings: Settings) -> Task:
    """The end task with its further tasks."""
    task = Task.read(settings.task, seed=settings.seed)
    further = {name: _read(name, one, settings.seed) for name, one in settings.tasks.items()}
    return replace(task, further=further)


def _read(name: str, asked: TaskSettings, seed: int) -> Task:
    try:
        return replace(Task.read(asked, seed=seed), name=name)
    except InputError as error:
        raise InputError(f"tasks.{name}: {error}") from None


def leaks_between(task: Task) -> Iterator[str]:
    """A sentence for each task whose train texts stand in dev or test of another: its labels may give answers away."""
    tasks = {"the task": task, **task.further}
    train = {name: {normalized_key(example) for example in one.train} for name, one in tasks.items()}
    for name, one in tasks.items():
        asked = {normalized_key(example) for split in ("dev", "test") for example in one.splits.get(split, ())}
        for other, known in train.items():
            count = len(known & asked) if other != name else 0
            if count:
                texts = f"{count:,} {'text' if count == 1 else 'texts'}"
                yield f"{texts} of train of {other} {'stands' if count == 1 else 'stand'} in dev or test of {name}"
