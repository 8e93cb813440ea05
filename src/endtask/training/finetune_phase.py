"""The phase that fine-tunes one seed: the heads' first weights, the tasks and their batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from endtask.config import Budget, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network, auxiliary_head, reset_auxiliary_heads
from endtask.objectives.stream import TextStream
from endtask.objectives.task import FinetunedTask
from endtask.objectives.task_losses import task_objective
from endtask.processes import current_processes
from endtask.progress import duration
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_folder
from endtask.training.budget_plan import leaves_out_pretraining, measure_cost, most_for_finetuning, with_scoring
from endtask.training.initial_network import copy_aligned_head
from endtask.training.phase import Phase
from endtask.weighting.alternate import Alternate

END_TASK = "task"
"""The name of the end task's objective."""


def finetune_phase(
    network: Network,
    task: Task,
    packed: Path,
    settings: Settings,
    context: DeviceContext,
    *,
    seed: int,
    learning_rate: float | None = None,
) -> Phase:
    """Initialise the heads of the network, and return the phase of a seed; the plan may reduce its steps.

    All learning rates share the heads and batches of a seed, so that they differ in nothing else.
    """
    if settings.finetune.rdrop == "auto" and not settings.model.dropout:
        settings = without_rdrop(settings)
    finetune = settings.finetune
    phase_seed = derive(settings.seed, "finetune", seed)
    if finetune.head != "pretrained":
        network.reset_task_head(derive(phase_seed, "head"))
        reset_auxiliary_heads(network, task, phase_seed)
    if finetune.head == "aligned":
        copy_aligned_head(network, settings)
    network.set_dropout(settings.model.dropout)
    tasks = finetuned_tasks(network, task, packed, settings, phase_seed)
    return Phase(
        network=network,
        objectives=tasks,
        weighting=alternating(tasks),
        steps=finetune.max_steps or finetune.epochs * batches_per_epoch(tasks),
        settings=finetune,
        learning_rate=learning_rate or finetune.learning_rates[0],
        seed=phase_seed,
        context=context,
    )


def finetuned_tasks(
    network: Network, task: Task, packed: Path, settings: Settings, seed: int
) -> dict[str, FinetunedTask]:
    """Return the objectives of the end task and of the auxiliary tasks that are fine-tuned with it, by name."""
    finetune, objectives = settings.finetune, {}
    sources = {END_TASK: (task, packed, TASK)}
    for name in settings.scored_tasks:
        sources[name] = task.auxiliary[name], packed_folder(packed, name), auxiliary_head(name)
    for name, (source, folder, head) in sources.items():
        stream = TextStream(name, PackedTexts(folder / "train"), network, batch_size=finetune.batch_size, seed=seed)
        objectives[name] = FinetunedTask(task_objective(source, name, stream, head=head), finetune)
    return objectives


def alternating(tasks: Mapping[str, Any]) -> Alternate:
    """Return a rule that schedules each task by its number of batches, so that an epoch reads each text once."""
    return Alternate(*tasks, weights=[steps_per_epoch(task) for task in tasks.values()])


def batches_per_epoch(tasks: Mapping[str, Any]) -> int:
    """Return the number of batches that contain all texts of all tasks once."""
    return sum(map(steps_per_epoch, tasks.values()))


def steps_per_epoch(task: Any) -> int:
    """Return the number of batches that contain all texts of a task once."""
    batches: int = task.stream.plan.batches_per_epoch
    return batches


def tokens_to_read(packed: Path, settings: Settings) -> float:
    """Return about how many tokens all learning rates and seeds read, without auxiliary tasks and padding."""
    finetune = settings.finetune
    runs = len(finetune.learning_rates) * len(settings.model_seeds)
    texts = PackedTexts(packed / "train")
    epoch_tokens = float(texts.lengths.sum())
    if finetune.max_steps is None:
        run_tokens = finetune.epochs * epoch_tokens
    else:
        size = finetune.batch_size
        run_tokens = finetune.max_steps * size.amount * (epoch_tokens / len(texts) if size.unit == "texts" else 1)
    return float(runs * run_tokens * finetune.passes)


def number_of_runs(settings: Settings) -> int:
    """Return the number of fine-tunings: seeds times learning rates."""
    return len(set(settings.finetune.learning_rates)) * len(settings.model_seeds)


def rounds_of(runs: int, budget: Budget) -> int:
    """Return how many fine-tunings share a budget: of a time budget those that follow each other in one process."""
    return -(-runs // current_processes().count) if budget.seconds is not None else runs


def amount_for_all_epochs(
    network: Network, task: Task, packed: Path, settings: Settings, context: DeviceContext
) -> float:
    """Return how much of the budget, in its unit, all fine-tunings need for all their epochs.

    The weights and the dropout of the network are restored.
    """
    weights = {name: value.detach().clone() for name, value in network.state_dict().items()}
    try:
        phase = finetune_phase(network, task, packed, settings, context, seed=settings.model_seeds[0])
        cost = measure_cost(phase, settings.budget)
    finally:
        network.load_state_dict(weights)
        network.set_dropout(settings.pretrain.dropout)
    every = settings.finetune.eval_steps or batches_per_epoch(phase.objectives)
    cost = with_scoring(cost, packed / "dev", every=every)
    runs = rounds_of(number_of_runs(settings), settings.budget)
    amount: float = phase.steps * runs * cost.amount(settings.budget.unit)
    too_much = amount > most_for_finetuning(settings) * settings.budget.amount
    return amount / phase.objectives[END_TASK].passes if too_much and settings.finetune.rdrop == "auto" else amount


def without_rdrop(settings: Settings) -> Settings:
    """Return the settings without R-Drop."""
    finetune = settings.finetune.model_copy(update={"rdrop": 0.0})
    return settings.model_copy(update={"finetune": finetune})


def plan_in_words(settings: Settings, amount: float) -> str:
    """Return what the budget buys; `amount` is what all epochs of all fine-tunings need of it."""
    budget, finetune = settings.budget, settings.finetune
    length = f"{finetune.max_steps} steps" if finetune.max_steps else f"{finetune.epochs} epochs"
    runs = f"fine-tuning {number_of_runs(settings)} x {length}"
    share = amount / budget.amount
    if share <= most_for_finetuning(settings):
        return f"the budget {budget} buys pre-training for {_share(budget, 1 - share)}, {runs} {_share(budget, share)}"
    enough = budget.share(2 * share)
    hint = f"--budget {math.ceil(enough.amount / 60)}min" if budget.seconds is not None else f"--budget {enough}"
    alone = ", without pre-training" if leaves_out_pretraining(settings, share) else ""
    needs = f"{runs}, which needs about {_share(budget, share)}"
    return f"the budget {budget} is too small for {needs}: each fine-tuning ends earlier{alone}; try {hint}"


def _share(budget: Budget, share: float) -> str:
    return duration(budget.share(share).amount) if budget.seconds is not None else f"{share:.0%}"
