"""From a budget to a number of steps, decided once before step 1; no clock is read after that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from endtask.config import Budget, Settings
from endtask.encoders.flops import training_flops
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import explained_memory_trouble
from endtask.training.loop import StepRecord, build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.prefetch import batches_of

_FEWEST_WARMUP_STEPS, _MOST_WARMUP_STEPS = 3, 8
_STEPS_PER_GROUP, _MOST_GROUPS = 8, 8
_WARMUP_SHARE_OF_BUDGET, _SHARE_OF_BUDGET = 0.01, 0.03
_SAMPLED_STEPS = 50
_STEPS_SEARCHED = 10_000


@dataclass(frozen=True)
class StepCost:
    """Mean cost of one step."""

    tokens: float
    flops: float
    seconds: float | None = None


def parameters_of(phase: Phase) -> int:
    """Trained parameters: the encoder, and the heads that some objective uses."""
    heads = sorted({head for objective in phase.objectives.values() for head in objective.heads})
    parts = [phase.network.encoder, *(phase.network.heads[head] for head in heads)]
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def flops_of(phase: Phase, tokens: float) -> float:
    """Return the cost of training on so many tokens, by the papers' rule."""
    return training_flops(parameters_of(phase), tokens)


def split_budget(settings: Settings) -> tuple[Budget, Budget | None]:
    """What pre-training and all of fine-tuning may use; steps are pre-training's, fine-tuning then has no limit.

    A stage that is left out leaves its part to the other.

    >>> [str(part) for part in split_budget(Settings(budget=Budget.parse("10min")))]
    ['450s', '150s']
    """
    budget, share = settings.budget, settings.finetune.budget_share
    if budget.unit == "steps" or settings.skip_finetuning:
        return budget, None
    if settings.skip_pretraining:
        return budget, budget
    return budget.share(1 - share), budget.share(share)


def measure_cost(phase: Phase, budget: Budget) -> StepCost:
    """Tokens and FLOPs per step from sampled batches; seconds too, by a short trial, if the budget is a time."""
    trial = replace(phase, steps=_SAMPLED_STEPS)  # a ramp over them costs what it costs over all steps
    batches = [one for step in range(_SAMPLED_STEPS) for one in batches_of(trial, step)]
    tokens = sum(one.tokens for one in batches) / _SAMPLED_STEPS
    seconds = tokens * _seconds_per_token(phase, budget.amount) if budget.unit == "seconds" else None
    return StepCost(tokens, training_flops(parameters_of(phase), tokens), seconds)


def with_scoring(cost: StepCost, dev: Path, *, every: int) -> StepCost:
    """The cost of a step with its part of scoring dev: a forward pass, a third of training on as many tokens."""
    if cost.seconds is None:
        return cost
    scored = PackedTexts(dev).lengths.sum() / every
    return replace(cost, seconds=cost.seconds * (1 + float(scored) / (3 * cost.tokens)))


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


def _seconds_per_token(phase: Phase, budget_seconds: float) -> float:
    """What a token usually takes; network and weighting are left as they were.

    What is compiled on the way is not counted, and stays compiled; nor are the steps in which memory is laid out and
    a GPU's clock still rises. The rest is timed in groups of 8 steps, of which the median counts: 64 steps of a small
    network take a GPU about a second, and in their mean one stall of the machine would pass for slow training. By
    the token, because few groups may hold one of the task's batches, which can be larger or smaller than the others.
    """
    trial = replace(phase, steps=_MOST_WARMUP_STEPS + _MOST_GROUPS * _STEPS_PER_GROUP, ramp_fraction=0.0)
    with explained_memory_trouble(), _put_back(phase):
        optimizer = build_optimizer(trial)
        for first in _first_steps(trial):
            next(train(replace(trial, steps=first + 1), optimizer, start=first))
        steps = train(trial, optimizer)
        _warm_up(steps, budget_seconds)
        phase.context.synchronize()
        times, tokens = [time.perf_counter()], []
        while len(times) <= _MOST_GROUPS and times[-1] - times[0] <= _SHARE_OF_BUDGET * budget_seconds:
            tokens.append(_take_group(steps, times[0] + budget_seconds))
            phase.context.synchronize()
            times.append(time.perf_counter())
    return median((end - start) / count for (start, end), count in zip(pairwise(times), tokens, strict=True))


def _warm_up(steps: Iterator[StepRecord], budget_seconds: float) -> None:
    """A few steps; more of them where that takes little time, fewer where it would take all there is."""
    started = time.perf_counter()
    for done in range(1, _MOST_WARMUP_STEPS + 1):
        next(steps)
        share = _WARMUP_SHARE_OF_BUDGET if done >= _FEWEST_WARMUP_STEPS else 1.0
        if time.perf_counter() - started > share * budget_seconds:
            break


def _take_group(steps: Iterator[StepRecord], until: float) -> int:
    """Do the steps of a group, but start none after a time; returns their tokens."""
    tokens = 0
    for _ in range(_STEPS_PER_GROUP):
        tokens += next(steps).tokens
        if time.perf_counter() > until:  # a step of minutes says enough alone
            break
    return tokens


def _first_steps(phase: Phase) -> list[int]:
    """The first step of every objective, which compiles for its shapes; a task batch may come late."""
    first: dict[str, int] = {}
    for step in range(_STEPS_SEARCHED):
        for scheduled in phase.weighting.schedule(step):
            first.setdefault(scheduled.objective, step)
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
