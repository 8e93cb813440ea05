"""From a budget to a number of steps, decided once before step 1; no clock is read after that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from endtask.models.flops import training_flops
from endtask.settings import Budget, Settings
from endtask.train.loop import Phase, build_optimizer, train
from endtask.train.memory_trouble import explained_memory_trouble
from endtask.train.prefetch import batches_of

_WARMUP_STEPS = 3
_STEPS_AT_A_TIME, _MOST_STEPS = 8, 64
_SHARE_OF_BUDGET = 0.03
_SAMPLED_STEPS = 50
_STEPS_SEARCHED = 10_000


@dataclass(frozen=True)
class StepCost:
    """Mean cost of one step."""

    tokens: float
    flops: float
    seconds: float | None = None


def parameters_of(phase: Phase) -> int:
    """Trained parameters: the body, and the heads that some objective uses."""
    heads = sorted({head for objective in phase.objectives.values() for head in objective.heads})
    parts = [phase.network.body, *(phase.network.heads[head] for head in heads)]
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def split_budget(settings: Settings) -> tuple[Budget, Budget | None]:
    """What stage 1 and all of fine-tuning may use; steps are stage 1's, fine-tuning then has no limit.

    A stage that is left out leaves its part to the other.

    >>> [str(part) for part in split_budget(Settings(budget=Budget.parse("10min")))]
    ['450s', '150s']
    """
    budget, share = settings.budget, settings.finetune.budget_share
    if budget.unit == "steps" or settings.stage2 == "none":
        return budget, None
    if settings.stage1 == "none":
        return budget, budget
    return budget.share(1 - share), budget.share(share)


def measure_cost(phase: Phase, budget: Budget) -> StepCost:
    """Tokens and FLOPs per step from sampled batches; seconds too, by a short trial, if the budget is a time."""
    trial = replace(phase, steps=_SAMPLED_STEPS)  # a ramp over them costs what it costs over all steps
    batches = [one for step in range(_SAMPLED_STEPS) for one in batches_of(trial, step)]
    tokens = sum(one.batch.real_tokens for one in batches) / _SAMPLED_STEPS
    seconds = _time_steps(phase, budget.amount) if budget.unit == "seconds" else None
    if seconds is not None:
        seconds *= len(batches) / _SAMPLED_STEPS / _batches_per_full_step(phase)
    return StepCost(tokens, training_flops(parameters_of(phase), tokens), seconds)


def _batches_per_full_step(phase: Phase) -> float:
    turns = sum(len(phase.weighting.turns(step)) for step in range(_SAMPLED_STEPS)) / _SAMPLED_STEPS
    return turns * phase.accumulation


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
    """Mean seconds of a step with all its batches; network and weighting are left as they were.

    What is compiled on the way is not counted, and stays compiled.
    """
    trial = replace(phase, steps=_WARMUP_STEPS + _MOST_STEPS, ramp_fraction=0.0)
    with explained_memory_trouble(), _put_back(phase):
        optimizer = build_optimizer(trial)
        for first in _first_turns(trial):
            next(train(replace(trial, steps=first + 1), optimizer, start=first))
        steps = train(trial, optimizer)
        for _ in range(_WARMUP_STEPS):
            next(steps)
        phase.place.synchronize()
        started = time.perf_counter()
        for done, _ in enumerate(steps, start=1):
            if done % _STEPS_AT_A_TIME == 0:
                phase.place.synchronize()
                if time.perf_counter() - started > _SHARE_OF_BUDGET * budget_seconds:
                    break
        phase.place.synchronize()
        seconds = time.perf_counter() - started
    return seconds / done


def _first_turns(phase: Phase) -> list[int]:
    """The first step of every objective, which compiles for its shapes; a task batch may come late."""
    first: dict[str, int] = {}
    for step in range(_STEPS_SEARCHED):
        for turn in phase.weighting.turns(step):
            first.setdefault(turn.objective, step)
        if len(first) == len(phase.objectives):
            break
    return sorted(set(first.values()))


@contextmanager
def _put_back(phase: Phase) -> Iterator[None]:
    """Undo what training does to weights and weighting."""
    weights = {name: value.detach().to("cpu", copy=True) for name, value in phase.network.state_dict().items()}
    learned = {name: value.clone() for name, value in phase.weighting.state().items()}
    try:
        yield
    finally:
        phase.network.load_state_dict(weights)
        phase.weighting.load_state(learned)
