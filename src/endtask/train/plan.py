"""From a budget to a number of steps, decided once before step 1; no clock is read after that."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace

from endtask.settings import Budget
from endtask.train.loop import Phase, build_optimizer, train

_WARMUP_STEPS = 3
_MIN_STEPS, _MAX_STEPS = 8, 60
_SHARE_OF_BUDGET = 0.03
_SAMPLED_BATCHES = 50


@dataclass(frozen=True)
class StepCost:
    """Mean cost of one step."""

    tokens: float
    flops: float
    seconds: float | None = None


def training_flops(parameters: int, tokens: float) -> float:
    """The papers' rule: 6 x parameters x tokens (Kaplan et al.; TLM, section 4)."""
    return 6.0 * parameters * tokens


def parameters_of(phase: Phase) -> int:
    """Trained parameters."""
    return sum(parameter.numel() for parameter in phase.network.parameters())


def split_budget(budget: Budget, finetune_share: float) -> tuple[Budget, Budget | None]:
    """What stage 1 and all fine-tuning seeds together may use; steps are stage 1's, fine-tuning then has no limit.

    >>> [str(part) for part in split_budget(Budget.parse("10min"), 0.25)]
    ['450s', '150s']
    """
    if budget.unit == "steps":
        return budget, None
    return budget.share(1 - finetune_share), budget.share(finetune_share)


def measure_cost(phase: Phase, budget: Budget) -> StepCost:
    """Tokens and FLOPs per step from sampled batches; seconds too, by a short trial, if the budget is a time."""
    turns = [turn for step in range(_SAMPLED_BATCHES) for turn in phase.weighting.turns(step)]
    tokens = sum(phase.objectives[turn.objective].batch(turn.step).real_tokens for turn in turns) / _SAMPLED_BATCHES
    seconds = _time_steps(phase, budget.amount) if budget.unit == "seconds" else None
    return StepCost(tokens, training_flops(parameters_of(phase), tokens), seconds)


def steps_for(budget: Budget, cost: StepCost) -> int:
    """How many steps fit into a budget; at least one.

    >>> steps_for(Budget.parse("10ktok"), StepCost(tokens=100.0, flops=1e6))
    100
    """
    if budget.unit == "steps":
        return max(1, round(budget.amount))
    per_step = {"tokens": cost.tokens, "flops": cost.flops, "seconds": cost.seconds}[budget.unit]
    assert per_step is not None
    return max(1, int(budget.amount / per_step))


def _time_steps(phase: Phase, budget_seconds: float) -> float:
    """Mean seconds per step, measured on a copy of the network so that the real one starts untouched."""
    trial = replace(phase, network=copy.deepcopy(phase.network).to(phase.device), steps=_WARMUP_STEPS + _MAX_STEPS)
    steps = train(trial, build_optimizer(trial))
    for _ in range(_WARMUP_STEPS):
        next(steps)
    started = time.perf_counter()
    for done, record in enumerate(steps, start=1):
        float(next(iter(record.losses.values())))  # wait for the device
        elapsed = time.perf_counter() - started
        if done >= _MIN_STEPS and elapsed > _SHARE_OF_BUDGET * budget_seconds:
            break
    return elapsed / done
