"""The objective of a task, as its type defines it."""

from __future__ import annotations

from endtask.encoders.network import TASK
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.task import Task


def task_objective(
    task: Task,
    name: str,
    stream: TextStream,
    *,
    head: str = TASK,
    rdrop: float = 0.0,
    split: str = "train",
) -> TaskObjective:
    """Learn a split, whose packed texts or windows the stream reads; windows of a text count as one."""
    objective: TaskObjective = task.task_type.objective(task, name, stream, head=head, rdrop=rdrop, split=split)
    return objective
