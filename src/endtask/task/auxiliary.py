"""Auxiliary tasks that share the encoder with the end task: read with it, and looked at for leaks between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from endtask.config import Settings, TaskSettings
from endtask.errors import InputError
from endtask.task.leaks import asked_signs, learned_signs
from endtask.task.normalize import normalized_key
from endtask.task.task import Task

# A key of the section `task` in a sentence; a file may be called task.csv.
_KEY = re.compile(rf"(?<![\w./\\-])task\.({'|'.join(TaskSettings.model_fields)})\b")


def read_all(settings: Settings) -> Task:
    """The end task with its auxiliary tasks."""
    task = Task.read(settings.task, seed=settings.seed)
    auxiliary = {name: _read(name, one, settings.seed) for name, one in settings.tasks.items()}
    return replace(task, auxiliary=auxiliary)


def _read(name: str, asked: TaskSettings, seed: int) -> Task:
    try:
        return replace(Task.read(asked, seed=seed), name=name)
    except InputError as error:
        line, named = _KEY.subn(rf"tasks.{name}.\1", str(error))
        raise InputError(line if named else f"tasks.{name}: {line}") from None


def siblings(task: Task, name: str) -> tuple[Task, ...]:
    """The tasks on the same body as the auxiliary task of this name: the end task, and the other further ones."""
    return replace(task, auxiliary={}), *(one for other, one in task.auxiliary.items() if other != name)


def leaks_between(task: Task) -> Iterator[str]:
    """A sentence for each task whose train texts stand in dev or test of another: its labels may give answers away."""
    tasks = {"the task": task, **task.auxiliary}
    for name, one in tasks.items():
        rows = (row for split in ("dev", "test") for row in one.splits.get(split, ()))
        asked = {sign for row in rows for sign in asked_signs(row)}
        for other, learned in tasks.items():
            if other == name:
                continue
            count = len({normalized_key(row) for row in learned.train if not asked.isdisjoint(learned_signs(row))})
            if count:
                texts = f"{count:,} {'text' if count == 1 else 'texts'}"
                yield f"{texts} of train of {other} {'stands' if count == 1 else 'stand'} in dev or test of {name}"
