"""The steps of pre-training that fit into a budget, from the measured cost of a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from endtask.config import Budget, Settings
from endtask.encoders.flops import training_flops
from endtask.processes import ALONE
from endtask.progress import say
from endtask.task import Task
from endtask.training.budget_plan import (
    StepCost,
    leaves_out_pretraining,
    measure_cost,
    most_for_finetuning,
    parameters_of,
    split_budget,
    steps_for,
    with_scoring,
)
from endtask.training.finetune_phase import amount_for_all_epochs, plan_in_words
from endtask.training.phase import Phase
from endtask.training.pretrain_phase import weighting_context
from endtask.training.reselect import packed_round, with_reselection
from endtask.weighting.base import ExtraCost


def finetuning_share(phase: Phase, task: Task, packed: Path, settings: Settings) -> float | None:
    """Return the share of the budget that all epochs of all fine-tunings need, up to a limit; say what a budget buys.

    None where the settings have a share, or where the budget does not limit fine-tuning; 1 leaves no pre-training.
    """
    if settings.finetune.budget_share != "auto" or split_budget(settings)[1] is None:
        return None
    alone = replace(phase.context, processes=ALONE)  # each process fine-tunes seeds of its own
    amount = amount_for_all_epochs(phase.network, task, packed, settings, alone)
    say(f"pretrain: {plan_in_words(settings, amount)}")
    share = amount / settings.budget.amount
    return 1.0 if leaves_out_pretraining(settings, share) else min(most_for_finetuning(settings), share)


def plan_steps(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> tuple[int, StepCost]:
    """Return the steps that fit into the budget and their cost; plan twice if the weighting depends on the steps."""
    cost = _cost(phase, task, packed, settings, budget)
    steps = steps_for(budget, cost)
    weighting = settings.pretrain.weighting.part
    if weighting.depends_on_steps(task, settings, steps):
        rule = weighting.mean(weighting_context(phase, task, packed, settings), steps)
        cost = _cost(replace(phase, weighting=rule), task, packed, settings, budget)
        steps = steps_for(budget, cost)
    return steps, cost


def _cost(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> StepCost:
    """Return the cost of a step, with its shares of the weighting, of re-selection and of dev scoring."""
    extra, eval_steps = extra_cost(phase, task, packed, settings), settings.pretrain.eval_steps
    cost = _with_extra(measure_cost(phase, budget), extra, parameters_of(phase))
    tokens = packed_round(packed, settings.pretrain.reselect)
    cost = with_reselection(cost, phase.network, tokens, parameters_of(phase), settings)
    return cost if eval_steps is None else with_scoring(cost, packed / "dev", every=eval_steps)


def extra_cost(phase: Phase, task: Task, packed: Path, settings: Settings) -> ExtraCost | None:
    extra: ExtraCost | None = settings.pretrain.weighting.part.extra_cost(
        weighting_context(phase, task, packed, settings)
    )
    return extra


def _with_extra(cost: StepCost, extra: ExtraCost | None, parameters: int) -> StepCost:
    """Return the cost of a step with its share of the weighting's updates, which the seconds include already."""
    if extra is None:
        return cost
    flops = cost.flops + training_flops(parameters, extra.trained_tokens / extra.every)
    return replace(cost, tokens=cost.tokens + extra.tokens / extra.every, flops=flops)
