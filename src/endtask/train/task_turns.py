"""The tasks of stage 2: the end task, and those that take turns with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from endtask.models.network import TASK, Network
from endtask.models.task_heads import further_head
from endtask.objectives.by_kind import task_objective
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.packed import PackedTexts, packed_of
from endtask.weighting.alternate import Alternate

END_TASK = "task"
"""The name of the end task's objective."""


def task_objectives(
    network: Network, task: Task, packed: Path, settings: Settings, seed: int
) -> dict[str, TaskObjective]:
    """The end task, and by their names the further tasks that are fine-tuned with it."""
    objectives = {END_TASK: _objective(END_TASK, task, packed, TASK, network, settings, seed)}
    for name in settings.scored_tasks:
        own = task.further[name], packed_of(packed, name), further_head(name)
        objectives[name] = _objective(name, *own, network, settings, seed)
    return objectives


def _objective(
    name: str, task: Task, packed: Path, head: str, network: Network, settings: Settings, seed: int
) -> TaskObjective:
    finetune = settings.finetune
    stream = TextStream(name, PackedTexts(packed / "train"), network, batch_size=finetune.batch_size, seed=seed)
    return task_objective(task, name, stream, head=head, rdrop=finetune.rdrop)


def batches_per_epoch(tasks: Mapping[str, TaskObjective]) -> int:
    """How many batches it takes to read all texts of all tasks once."""
    return sum(one.stream.plan.batches_per_epoch for one in tasks.values())


def in_turn(tasks: Mapping[str, TaskObjective]) -> Alternate:
    """Every task as often as it has batches, so that an epoch reads each of them once."""
    return Alternate(*tasks, weights=[one.stream.plan.batches_per_epoch for one in tasks.values()])
