"""The tasks of fine-tuning: the end task, and those that take turns with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from endtask.config import Settings
from endtask.encoders.auxiliary_heads import auxiliary_head
from endtask.encoders.network import TASK, Network
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_of
from endtask.weighting.alternate import Alternate

END_TASK = "task"
"""The name of the end task's objective."""


def task_objectives(
    network: Network, task: Task, packed: Path, settings: Settings, seed: int
) -> dict[str, TaskObjective]:
    """The end task, and by their names the auxiliary tasks that are fine-tuned with it."""
    objectives = {END_TASK: _objective(END_TASK, task, packed, TASK, network, settings, seed)}
    for name in settings.scored_tasks:
        own = task.auxiliary[name], packed_of(packed, name), auxiliary_head(name)
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
