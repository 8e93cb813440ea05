"""The phase of fine-tuning: the end task, and the auxiliary tasks that alternate with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from endtask.config import Settings
from endtask.encoders.auxiliary_heads import auxiliary_head, reset_auxiliary_heads
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_of
from endtask.training.phase import Phase
from endtask.training.reused_head import keep_aligned_head
from endtask.weighting.alternate import Alternate
from endtask.weighting.equal import Equal

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


def alternating(tasks: Mapping[str, TaskObjective]) -> Alternate:
    """Every task as often as it has batches, so that an epoch reads each of them once."""
    return Alternate(*tasks, weights=[one.stream.plan.batches_per_epoch for one in tasks.values()])


def epoch_of_end_task(phase: Phase) -> int:
    """Steps of one epoch over the end task's rows, the least that is ever fine-tuned."""
    objective = phase.objectives[END_TASK]
    assert isinstance(objective, TaskObjective)
    return objective.stream.plan.batches_per_epoch


def tokens_to_read(packed: Path, settings: Settings) -> float:
    """About how many tokens all trainings read together; auxiliary tasks and padding not counted."""
    finetune = settings.finetune
    trainings = len(finetune.learning_rates) * len(settings.model_seeds) * finetune.members
    texts = PackedTexts(packed / "train")
    once = float(texts.lengths.sum())
    if finetune.max_steps is None:
        each = finetune.epochs * once
    else:
        size = finetune.batch_size
        each = finetune.max_steps * size.amount * (once / len(texts.lengths) if size.unit == "texts" else 1)
    return trainings * each * (2 if finetune.rdrop else 1)


def finetune_phase(
    network: Network,
    task: Task,
    packed: Path,
    settings: Settings,
    context: DeviceContext,
    *,
    seed: int,
    learning_rate: float | None = None,
    member: int = 0,
) -> Phase:
    """The phase of one seed, with the network's task head reset if so set; the plan may put in fewer steps.

    Rates share heads and batches of a seed, so that nothing but the rate tells them apart. Members share the head, for
    only what starts alike can be averaged, and differ in batches and dropout.
    """
    finetune = settings.finetune
    of_seed = derive(settings.seed, "finetune", seed)
    seed_here = derive(of_seed, "member", member) if member else of_seed
    if finetune.reset_head:
        network.reset_task_head(derive(of_seed, "head"))
        reset_auxiliary_heads(network, task, of_seed)
    if settings.aligned.keep_head:
        keep_aligned_head(network, settings)
    network.set_dropout(settings.model.dropout)
    tasks = task_objectives(network, task, packed, settings, seed_here)
    return Phase(
        network=network,
        objectives=tasks,
        weighting=alternating(tasks) if len(tasks) > 1 else Equal(*tasks),
        steps=finetune.max_steps or finetune.epochs * batches_per_epoch(tasks),
        settings=finetune,
        learning_rate=learning_rate or finetune.learning_rates[0],
        seed=seed_here,
        context=context,
        average_decay=finetune.average_decay,
    )
