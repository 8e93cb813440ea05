"""From a budget to steps, without touching what will be trained."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.settings import Budget
from endtask.train.loop import Phase, build_optimizer, train
from endtask.train.plan import StepCost, measure_cost, parameters_of, split_budget, steps_for, training_flops

from .conftest import MakePhase

COST = StepCost(tokens=200.0, flops=4e9, seconds=0.05)


@pytest.mark.parametrize(
    ("budget", "steps"),
    [("37steps", 37), ("10ktok", 50), ("0.1Mtok", 500), ("1e12flops", 250), ("10s", 200), ("1min", 1200), ("1tok", 1)],
)
def test_every_unit_becomes_steps(budget: str, steps: int) -> None:
    assert steps_for(Budget.parse(budget), COST) == steps


@pytest.mark.parametrize("budget", ["10min", "1Mtok", "1e12flops"])
def test_fine_tuning_gets_its_share(budget: str) -> None:
    first, second = split_budget(Budget.parse(budget), 0.2)
    assert second is not None
    assert first.amount == pytest.approx(0.8 * Budget.parse(budget).amount)
    assert first.amount + second.amount == pytest.approx(Budget.parse(budget).amount)
    assert {first.unit, second.unit} == {Budget.parse(budget).unit}


def test_steps_are_those_of_stage_1() -> None:
    assert split_budget(Budget.parse("40steps"), 0.2) == (Budget.parse("40steps"), None)


@given(
    amount=st.floats(min_value=1e-3, max_value=1e6),
    unit=st.sampled_from(["tokens", "flops", "seconds"]),
    per_step=st.floats(min_value=1e-3, max_value=1e3),
)
@settings(max_examples=50, deadline=None)
def test_the_steps_fit_into_the_budget_and_one_more_would_not(amount: float, unit: str, per_step: float) -> None:
    steps = steps_for(Budget(amount, unit, ""), StepCost(per_step, per_step, per_step))  # type: ignore[arg-type]
    assert steps == 1 or steps * per_step <= amount * (1 + 1e-9)
    assert (steps + 1) * per_step > amount * (1 - 1e-9)


def test_flops_are_six_times_parameters_times_tokens() -> None:
    assert training_flops(1000, 50.0) == 300_000.0


def test_the_cost_of_a_step_is_that_of_its_batches(make_phase: MakePhase) -> None:
    phase = make_phase(steps=50)
    cost = measure_cost(phase, Budget.parse("1ktok"))
    records = list(train(phase, build_optimizer(phase)))
    assert cost.tokens == pytest.approx(sum(record.tokens for record in records) / 50)
    assert cost.flops == training_flops(sum(p.numel() for p in phase.network.parameters()), cost.tokens)
    assert cost.seconds is None
    assert parameters_of(phase) == sum(value.numel() for value in phase.network.state_dict().values())


@pytest.mark.parametrize("budget", ["1ktok", "9steps", "1e9flops", "1s"])
def test_measuring_leaves_no_trace(make_phase: MakePhase, budget: str) -> None:
    measured, untouched = make_phase(), make_phase()
    before = {name: value.clone() for name, value in measured.network.state_dict().items()}
    cost = measure_cost(measured, Budget.parse(budget))
    assert all(value.equal(before[name]) for name, value in measured.network.state_dict().items())
    assert all(parameter.grad is None for parameter in measured.network.parameters())
    assert (cost.seconds is not None and cost.seconds > 0) == (budget == "1s")
    assert weights_after(measured) == weights_after(untouched)


def test_a_trial_is_short_beside_its_budget(make_phase: MakePhase, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("endtask.train.plan.time.perf_counter", lambda: float(next(clock)))
    phase = replace(make_phase(), steps=1)
    steps = []
    original = phase.objectives["external"].batch
    monkeypatch.setattr(phase.objectives["external"], "batch", lambda step: steps.append(step) or original(step))
    cost = measure_cost(phase, Budget(1000.0, "seconds", "1000s"))
    # A second per step: 3 steps to warm up, then until more than 3% of the budget is spent.
    assert cost.seconds == 1.0
    assert len(steps) - 25 == (3 + 31 + 1) // 2


def weights_after(phase: Phase) -> list[float]:
    for _ in train(phase, build_optimizer(phase)):
        pass
    return torch.cat([value.flatten() for value in phase.network.state_dict().values()]).tolist()
