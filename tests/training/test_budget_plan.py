"""From a budget to steps, without changing the network."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import Budget, Settings
from endtask.encoders.flops import training_flops
from endtask.training.budget_plan import StepCost, measure_cost, parameters_of, split_budget, steps_for
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave

from .conftest import MakePhase
from .numbers import Learned, Regression, number_phase

COST = StepCost(tokens=200.0, flops=4e9, seconds=0.05)


@pytest.mark.parametrize(
    ("budget", "steps"),
    [("37steps", 37), ("10ktok", 50), ("0.1Mtok", 500), ("1e12flops", 250), ("10s", 200), ("1min", 1200), ("1tok", 1)],
)
def test_every_unit_becomes_steps(budget: str, steps: int) -> None:
    assert steps_for(Budget.parse(budget), COST) == steps


@pytest.mark.parametrize("budget", ["10min", "1Mtok", "1e12flops"])
def test_fine_tuning_gets_its_share(budget: str) -> None:
    first, second = split_budget(settings_of(budget))
    assert second is not None
    assert first.amount == pytest.approx(0.8 * Budget.parse(budget).amount)
    assert first.amount + second.amount == pytest.approx(Budget.parse(budget).amount)
    assert {first.unit, second.unit} == {Budget.parse(budget).unit}


def test_steps_are_those_of_stage_1() -> None:
    assert split_budget(settings_of("40steps")) == (Budget.parse("40steps"), None)


def test_a_stage_left_out_leaves_its_part_to_the_other() -> None:
    whole = Budget.parse("10min")
    assert split_budget(settings_of("10min", skip_pretraining=True))[1] == whole
    assert split_budget(settings_of("10min", skip_finetuning=True)) == (whole, None)


def settings_of(budget: str, **changes: str) -> Settings:
    return Settings.model_validate({"budget": budget, "finetune": {"budget_share": 0.2}, **changes})


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
    assert cost.flops == training_flops(parameters_of(phase), cost.tokens)
    assert cost.seconds is None


def test_parameters_are_those_of_the_body_and_of_heads_in_use(make_phase: MakePhase) -> None:
    phase = make_phase()
    network = phase.network
    count = {name: sum(weight.numel() for weight in part.parameters()) for name, part in network.heads.items()}
    encoder = sum(weight.numel() for weight in network.encoder.parameters())
    assert parameters_of(phase) == encoder + count["masked_lm"] + count["task"]
    external = replace(phase, objectives={"corpus": phase.objectives["corpus"]})
    assert parameters_of(external) == encoder + count["masked_lm"]


@pytest.mark.parametrize("ramp", [0.0, 0.5, 1.0])
def test_all_batches_of_a_step_are_counted(ramp: float) -> None:
    phase = number_phase(accumulation=5, ramp_fraction=ramp, steps=1000)
    cost = measure_cost(phase, Budget.parse("1ktok"))
    whole = sum(2 * 4 * phase.batches_in(step) for step in range(1000)) / 1000
    assert cost.tokens == pytest.approx(whole, rel=0.05)
    assert (cost.tokens == 2 * 4 * 5) == (ramp == 0)


def test_measuring_does_not_need_texts() -> None:
    cost = measure_cost(number_phase(), Budget.parse("2s"))
    assert (cost.tokens, cost.flops) == (8, 6 * (32 + 72 + 9 + 9) * 8)
    assert cost.seconds is not None
    assert cost.seconds > 0


@pytest.mark.parametrize("budget", ["1ktok", "9steps", "1e9flops", "1s"])
def test_measuring_leaves_no_trace(make_phase: MakePhase, budget: str) -> None:
    measured, untouched = make_phase(), make_phase()
    before = {name: value.clone() for name, value in measured.network.state_dict().items()}
    cost = measure_cost(measured, Budget.parse(budget))
    assert all(value.equal(before[name]) for name, value in measured.network.state_dict().items())
    assert all(parameter.grad is None for parameter in measured.network.parameters())
    assert (cost.seconds is not None and cost.seconds > 0) == (budget == "1s")
    assert weights_after(measured) == weights_after(untouched)


def test_measuring_leaves_no_trace_in_a_weighting_that_learns() -> None:
    measured, untouched = number_phase(weighting=Learned()), number_phase(weighting=Learned())
    measure_cost(measured, Budget.parse("1s"))
    assert measured.weighting.state() == Learned().state()
    assert weights_after(measured) == weights_after(untouched)


class Clock:
    """A clock that only moves when a loss is computed: a second each, more for an objective's first and slow ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, phase: Phase, first: float, slow: range = range(0)) -> None:
        self.now, self.calls, self.slow = 0.0, dict.fromkeys(phase.objectives, 0), slow
        monkeypatch.setattr("endtask.training.budget_plan.time.perf_counter", lambda: self.now)
        for name, objective in phase.objectives.items():
            monkeypatch.setattr(objective, "loss", partial(self._loss, name, objective.loss, first))

    def _loss(self, name: str, original: Any, first: float, *arguments: Any) -> Any:
        self.now += (1.0 if self.calls[name] else first) + 9 * (self.calls[name] in self.slow)
        self.calls[name] += 1
        return original(*arguments)


def test_a_trial_is_short_beside_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(weighting=Equal("sum"), objectives={"sum": Regression("sum")})
    clock = Clock(monkeypatch, phase, first=1.0)
    cost = measure_cost(phase, Budget(1000.0, "seconds", "1000s"))
    # A second per step: 1 + 8 steps to warm up, then until more than 3% of the budget is spent, 8 steps at a time.
    assert cost.seconds == 1.0
    assert clock.calls == {"sum": 1 + 8 + 32}


def test_where_steps_take_long_few_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(weighting=Equal("sum"), objectives={"sum": Regression("sum")})
    clock = Clock(monkeypatch, phase, first=1.0)
    assert measure_cost(phase, Budget(450.0, "seconds", "")).seconds == 1.0
    assert clock.calls == {"sum": 1 + 5 + 16}


def test_a_step_longer_than_the_budget_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model on a CPU: `check` has ten seconds, and a step takes a minute."""
    phase = number_phase(weighting=Equal("sum"), objectives={"sum": Regression("sum")})
    clock = Clock(monkeypatch, phase, first=1.0)
    assert measure_cost(phase, Budget(0.5, "seconds", "")).seconds == 1.0
    assert clock.calls == {"sum": 1 + 1 + 1}


@pytest.mark.parametrize("slow", [range(3), range(12, 33), range(70, 72)])
def test_a_stall_of_the_machine_does_not_pass_for_slow_steps(monkeypatch: pytest.MonkeyPatch, slow: range) -> None:
    phase = number_phase(weighting=Equal("sum"), objectives={"sum": Regression("sum")})
    clock = Clock(monkeypatch, phase, first=1.0, slow=slow)
    assert measure_cost(phase, Budget(1e9, "seconds", "")).seconds == 1.0
    assert clock.now == 1 + 8 + 64 + 9 * len(slow)


def test_a_trial_ends_before_its_budget_does(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(weighting=Equal("sum"), objectives={"sum": Regression("sum")})
    clock = Clock(monkeypatch, phase, first=1.0)
    measure_cost(phase, Budget(1e9, "seconds", ""))
    assert clock.calls == {"sum": 1 + 8 + 64}


@pytest.mark.parametrize("rho1", [1, 19, 999])
def test_what_an_objective_compiles_at_its_first_turn_is_not_timed(monkeypatch: pytest.MonkeyPatch, rho1: int) -> None:
    """A task batch comes late, has shapes of its own, and would be taken for slow."""
    phase = number_phase(weighting=Interleave("sum", "first", rho1))
    clock = Clock(monkeypatch, phase, first=500.0)
    cost = measure_cost(phase, Budget(1e5, "seconds", ""))
    assert clock.now >= 2 * 500
    assert cost.seconds == 1.0


@pytest.mark.parametrize("rho1", [1, 6, 9, 19])
def test_batches_of_other_sizes_count_by_their_tokens(monkeypatch: pytest.MonkeyPatch, rho1: int) -> None:
    """Most groups of timed steps hold no task batch where rho1 is large."""
    objectives = {"sum": Regression("sum", size=4), "first": Regression("first", size=20)}
    phase = number_phase(weighting=Interleave("sum", "first", rho1), objectives=objectives)
    clock = Clock(monkeypatch, phase, first=1.0)
    for name, objective in objectives.items():
        seconds = {"sum": 1.0, "first": 5.0}[name]
        monkeypatch.setattr(objective, "loss", partial(_slow_loss, clock, seconds, Regression.loss, objective))
    cost = measure_cost(phase, Budget(1e5, "seconds", ""))
    assert cost.seconds == pytest.approx((rho1 + 5) / (rho1 + 1), rel=0.04)


def _slow_loss(clock: Clock, seconds: float, original: Any, *arguments: Any) -> Any:
    clock.now += seconds
    return original(*arguments)


def test_seconds_follow_the_batches_of_a_ramp(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(
        weighting=Equal("sum"), objectives={"sum": Regression("sum")}, accumulation=4, ramp_fraction=1.0
    )
    Clock(monkeypatch, phase, first=1.0)
    cost = measure_cost(phase, Budget(1e5, "seconds", ""))
    assert cost.seconds == pytest.approx(cost.tokens / 4)
    assert 1.9 < cost.seconds < 2.1


def weights_after(phase: Phase) -> list[float]:
    for _ in train(phase, build_optimizer(phase)):
        pass
    return torch.cat([value.flatten() for value in phase.network.state_dict().values()]).tolist()
