"""Convert a budget to a number of steps, once before step 1; training reads no clock after that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from endtask.config import Budget, Settings
from endtask.encoders.flops import training_flops
from endtask.encoders.weights import load_state_dict, whole
from endtask.io.stage_folder import StageFolder
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import explain_out_of_memory
from endtask.training.loop import StepRecord, build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.prefetch import batches_of

_MIN_WARMUP_STEPS, _MAX_WARMUP_STEPS = 3, 8
_STEPS_PER_GROUP, _MAX_GROUPS = 8, 8
_WARMUP_SHARE_OF_BUDGET, _SHARE_OF_BUDGET = 0.01, 0.03
_SAMPLED_STEPS = 50
_STEPS_SEARCHED = 10_000


@dataclass(frozen=True)
class StepCost:
    """Mean cost of one step."""

    tokens: float
    flops: float
    seconds: float | None = None

    def amount(self, unit: str) -> float:
        """Return the cost in the unit of a budget in tokens, FLOPs or measured seconds."""
        value = {"tokens": self.tokens, "flops": self.flops, "seconds": self.seconds}[unit]
        assert value is not None
        return value


def parameters_of(phase: Phase) -> int:
    """Return the number of trained parameters: the encoder, and the heads that some objective uses."""
    heads = sorted({head for objective in phase.objectives.values() for head in objective.heads})
    parts = [phase.network.encoder, *(phase.network.heads[head] for head in heads)]
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def flops_of(phase: Phase, tokens: float) -> float:
    """Return the FLOPs of training on `tokens` tokens, by the papers' rule."""
    return training_flops(parameters_of(phase), tokens)


MOST_FOR_FINETUNING, MOST_FROM_A_CHECKPOINT = 0.75, 0.9
"""The most that fine-tuning takes of a budget when it needs more for all its epochs; a checkpoint needs less before."""
_USUAL_SHARE = 0.25


def split_budget(settings: Settings, finetuning_share: float | None = None) -> tuple[Budget, Budget | None]:
    """Return the budgets of pre-training and of fine-tuning, None without a limit.

    A budget in steps limits pre-training only. If one stage is skipped, the other gets the whole budget.
    `finetuning_share` is what `finetune.budget_share: auto` came to; a quarter before that is known.

    >>> [str(part) for part in split_budget(Settings(budget=Budget.parse("10min")))]
    ['450s', '150s']
    """
    budget, share = settings.budget, settings.finetune.budget_share
    if share == "auto":
        share = _USUAL_SHARE if finetuning_share is None else finetuning_share
    if budget.unit == "steps" or settings.skip_finetuning:
        return budget, None
    if settings.skip_pretraining:
        return budget, budget
    return budget.share(1 - share), budget.share(share)


def most_for_finetuning(settings: Settings) -> float:
    """Return the largest share of a budget that fine-tuning takes.

    >>> most_for_finetuning(Settings())
    0.75
    """
    return MOST_FOR_FINETUNING if settings.model.path is None else MOST_FROM_A_CHECKPOINT


def leaves_out_pretraining(settings: Settings, share: float) -> bool:
    """Return whether fine-tuning a checkpoint needs so large a share of a budget that pre-training is left out.

    What would be left reads a few hundred thousand tokens at most, which gained nothing. Random weights always get
    some, and so does a fine-tuning that starts from the best step or the head of pre-training.

    >>> leaves_out_pretraining(Settings(), 2.0)
    False
    """
    finetune = settings.finetune
    is_free = settings.model.path is not None and finetune.start_from != "best" and finetune.head == "new"
    return is_free and share > MOST_FROM_A_CHECKPOINT


def without_seconds_used(budget: Budget, stage: StageFolder) -> Budget:
    """Return what a stage has left of a time budget, at least a tenth; other budgets unchanged."""
    if budget.seconds is None:
        return budget
    left = max(0.1 * budget.amount, budget.amount - stage.seconds)
    return budget.share(left / budget.amount)


def measure_cost(phase: Phase, budget: Budget) -> StepCost:
    """Return tokens and FLOPs per step of sampled batches; a time budget also measures seconds in a short trial."""
    trial = replace(phase, steps=_SAMPLED_STEPS)  # the batch ramp has the same mean over these as over all steps
    batches = [batch for step in range(_SAMPLED_STEPS) for batch in batches_of(trial, step)]
    tokens = sum(batch.tokens for batch in batches) / _SAMPLED_STEPS
    seconds = tokens * _seconds_per_token(phase, budget.amount) if budget.unit == "seconds" else None
    return StepCost(tokens, training_flops(parameters_of(phase), tokens), seconds)


def with_scoring(cost: StepCost, dev: Path, *, every: int) -> StepCost:
    """Return the cost of a step with its share of dev scoring: a forward pass takes a third of a training step."""
    if cost.seconds is None:
        return cost
    scored_tokens = float(PackedTexts(dev).lengths.sum() / every)
    return replace(cost, seconds=cost.seconds * (1 + scored_tokens / (3 * cost.tokens)))


def steps_for(budget: Budget, cost: StepCost) -> int:
    """Return how many steps fit into a budget, at least 1.

    >>> steps_for(Budget.parse("10ktok"), StepCost(tokens=100.0, flops=1e6))
    100
    """
    if budget.unit == "steps":
        return max(1, round(budget.amount))
    return max(1, int(budget.amount / cost.amount(budget.unit)))


def _seconds_per_token(phase: Phase, budget_seconds: float) -> float:
    """Return the usual seconds per token; restores network and weighting.

    Compilation is not timed (its result stays cached), nor are warm-up steps, in which memory is allocated and a GPU
    raises its clock. The rest is timed in groups of 8 steps, and the median group counts: 64 steps of a small network
    take a GPU about a second, and one stall of the machine would distort their mean. Seconds are per token, because few
    groups contain one of the task's batches, whose size differs.
    """
    trial = replace(phase, steps=_MAX_WARMUP_STEPS + _MAX_GROUPS * _STEPS_PER_GROUP, ramp_fraction=0.0)
    agreed = phase.context.processes.shared  # all processes run the same steps
    with explain_out_of_memory(), _restored(phase):
        optimizer = build_optimizer(trial)
        for first in _first_steps(trial):
            next(train(replace(trial, steps=first + 1), optimizer, start=first))
        steps = train(trial, optimizer)
        _warm_up(steps, budget_seconds, agreed)
        phase.context.synchronize()
        times, tokens = [time.perf_counter()], []
        while len(times) <= _MAX_GROUPS and agreed(times[-1] - times[0] <= _SHARE_OF_BUDGET * budget_seconds):
            tokens.append(_run_group(steps, times[0] + budget_seconds, agreed))
            phase.context.synchronize()
            times.append(time.perf_counter())
    return median((end - start) / count for (start, end), count in zip(pairwise(times), tokens, strict=True))


def _warm_up(steps: Iterator[StepRecord], budget_seconds: float, agreed: Callable[[bool], bool]) -> None:
    """Run 3 to 8 steps: stop at 1% of the budget, or at all of it before the third step."""
    started = time.perf_counter()
    for done in range(1, _MAX_WARMUP_STEPS + 1):
        next(steps)
        share = _WARMUP_SHARE_OF_BUDGET if done >= _MIN_WARMUP_STEPS else 1.0
        if agreed(time.perf_counter() - started > share * budget_seconds):
            break


def _run_group(steps: Iterator[StepRecord], deadline: float, agreed: Callable[[bool], bool]) -> int:
    """Run a group of steps, fewer after the deadline, and return their tokens."""
    tokens = 0
    for _ in range(_STEPS_PER_GROUP):
        tokens += next(steps).tokens
        if agreed(time.perf_counter() > deadline):  # a step of minutes is a measurement alone
            break
    return tokens


def _first_steps(phase: Phase) -> list[int]:
    """Return the first steps of the objectives, each of which compiles for its shapes; a task batch may come late."""
    first: dict[str, int] = {}
    for step in range(_STEPS_SEARCHED):
        for scheduled in phase.weighting.schedule(step):
            first.setdefault(scheduled.objective, step)
        if len(first) == len(phase.objectives):
            break
    return sorted(set(first.values()))


@contextmanager
def _restored(phase: Phase) -> Iterator[None]:
    """Restore weights and weighting state after the block."""
    weights = {name: whole(value).detach().to("cpu", copy=True) for name, value in phase.network.state_dict().items()}
    weighting = {name: value.clone() for name, value in phase.weighting.state().items()}
    try:
        yield
    finally:
        load_state_dict(phase.network, weights, Path())
        phase.weighting.load_state(weighting)
