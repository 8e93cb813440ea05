"""Steps that are planned again: schedules follow without a jump, time is kept, and a resumed run decides the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import PhaseSettings
from endtask.encoders.device_context import DeviceContext
from endtask.training import pacing
from endtask.training.finetune_pacing import pacer_of_run
from endtask.training.pacing import CHECKS, Pacer, Scoring
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase

from .conftest import MakePhase

CPU = DeviceContext(torch.device("cpu"))


def plain_phase(steps: int, *replans: tuple[int, int]) -> Phase:
    """A phase without a network; `replans` are (step, number of steps from then on)."""
    settings = PhaseSettings(warmup_steps=0.1)
    last = replans[-1][1] if replans else steps
    return Phase(None, {}, None, last, settings, 1.0, 0, CPU, planned=steps, replans=replans)  # type: ignore[arg-type]


def walked_position(phase: Phase, step: int) -> float:
    """Walk one step at a time: each takes the same part of what the plan of the moment has left."""
    plans, position = dict(phase.replans), 0.0
    steps = phase.planned_steps
    for now in range(step):
        steps = plans.get(now, steps)
        position += (phase.planned_steps - position) / (steps - now)
    return position


@st.composite
def replanned(draw: st.DrawFn) -> Phase:
    steps = draw(st.integers(5, 60))
    replans, total, at = [], steps, 0
    for _ in range(draw(st.integers(0, 4))):
        if total - at < 3:
            break
        at = draw(st.integers(at + 1, total - 2))
        total = draw(st.integers(at + 1, at + 60))
        replans.append((at, total))
    return plain_phase(steps, *replans)


@given(replanned())
def test_the_position_is_that_of_a_walk(phase: Phase) -> None:
    for step in range(phase.steps + 1):
        assert phase.position(step) == pytest.approx(walked_position(phase, step))
    assert phase.position(phase.steps) == pytest.approx(phase.planned_steps)


@given(replanned(), st.floats(0, 1))
def test_step_at_is_the_first_step_that_far(phase: Phase, share: float) -> None:
    position = share * phase.planned_steps
    wanted = next((step for step in range(phase.steps) if phase.position(step) >= position), phase.steps)
    assert phase.step_at(position) == wanted


def test_without_a_new_plan_nothing_changes() -> None:
    phase = plain_phase(50)
    assert [phase.position(step) for step in range(51)] == list(range(51))
    rates = [replace(phase, planned=None).rate_factor(step) for step in range(50)]
    assert [phase.rate_factor(step) for step in range(50)] == rates


class Clock:
    """Time passes only by steps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class FakeStage:
    """A stage whose plan survives the process, with the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.plan = clock, dict[str, Any]()

    @property
    def seconds(self) -> float:
        return self.clock.now

    def set_plan(self, **decisions: Any) -> None:
        self.plan.update(decisions)


def simulated(seconds_at: Any, *, planned: int, budget: float, monkeypatch: pytest.MonkeyPatch) -> tuple[float, int]:
    """Walk through a phase whose steps take `seconds_at(time)`; returns the time at the end and the steps."""
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    steps = walk(clock, Pacer(FakeStage(clock), budget), seconds_at, planned)
    return clock.now, steps


def walk(clock: Clock, pacer: Pacer, seconds_at: Any, planned: int) -> int:
    """Let the time of a phase with a pacer pass, scores of dev included; returns its number of steps."""
    phase, step = pacer.restored(plain_phase(planned), 0), 0
    while step < phase.steps:
        end = pacer.next_check(phase, step)
        for done in range(step + 1, end + 1):
            scores = done % pacer.scoring.every == 0 or done == phase.steps
            clock.now += seconds_at(clock.now) * (1 + (pacer.scoring.steps if scores else 0))
        step = end
        if step < phase.steps:
            phase = pacer.replan(phase, step)
    return step


@pytest.mark.parametrize(
    "seconds_at",
    [lambda now: 0.1, lambda now: 0.3, lambda now: 0.04, lambda now: 0.1 if now < 30 else 0.4, lambda now: 0.5 if now < 40 else 0.1],
    ids=["as planned", "three times slower", "faster", "slower later", "faster later"],
)  # fmt: skip
def test_the_budget_holds_whatever_the_machine_does(seconds_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, _ = simulated(seconds_at, planned=900, budget=90.0, monkeypatch=monkeypatch)
    assert 0.9 * 90 <= seconds <= 1.1 * 90


def test_a_budget_that_is_used_up_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, steps = simulated(lambda now: 10.0, planned=900, budget=90.0, monkeypatch=monkeypatch)
    assert steps <= CHECKS[0] * 900 + len(CHECKS)
    assert seconds == 10.0 * steps


SPEEDS = [lambda now: 0.1, lambda now: 0.3, lambda now: 0.1 if now < 30 else 0.4, lambda now: 0.5 if now < 40 else 0.1]


@pytest.mark.parametrize("seconds_at", SPEEDS, ids=["as planned", "slower", "slower later", "faster later"])
@pytest.mark.parametrize("every", [40, 1000], ids=["epochs", "less than an epoch"])
def test_finetunings_end_in_time(seconds_at: Any, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    stage: Any = FakeStage(clock)
    stage.set_plan(ends=90.0)
    steps = []
    for seed in range(3):
        pacer = pacer_of_run(
            stage, tmp_path / str(seed), runs_left=3 - seed, most_steps=400, scoring=Scoring(8.0, every)
        )
        assert pacer is not None
        steps.append(walk(clock, pacer, seconds_at, planned=250))
    assert max(steps) <= 400
    assert clock.now <= 1.1 * 90
    assert clock.now >= 0.9 * 90 or steps == [400, 400, 400]


def test_a_finetuning_that_is_in_time_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    stage: Any = FakeStage(clock)
    stage.set_plan(ends=90.0)
    pacer = pacer_of_run(stage, tmp_path, runs_left=1, most_steps=400, scoring=Scoring())
    assert pacer is not None
    assert walk(clock, pacer, lambda now: 0.1, planned=400) == 400
    phase = pacer.restored(plain_phase(400), 399)
    assert [phase.rate_factor(step) for step in range(400)] == [
        plain_phase(400).rate_factor(step) for step in range(400)
    ]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_a_resumed_run_trains_the_steps_that_were_decided(
    killed_at: int, make_phase: MakePhase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    monkeypatch.setattr(pacing, "CHECKS", (0.3, 0.6))

    def run(folder: Path, stage: FakeStage, stop_after: int | None) -> dict[str, torch.Tensor]:
        saved: list[None] = []

        def on_checkpoint() -> None:
            clock.now += 1.0
            saved.append(None)
            if len(saved) == stop_after:
                raise Killed

        phase = make_phase(steps=20, checkpoint_steps=3)
        run_phase(phase, folder, label="test", on_checkpoint=on_checkpoint, pacer=Pacer(stage, 5.0))
        return {name: value.clone() for name, value in phase.network.state_dict().items()}

    stage = FakeStage(clock)
    with pytest.raises(Killed):
        run(tmp_path / "a", stage, killed_at)
    clock.now += 100.0  # later, and on a machine of another speed
    ended = run(tmp_path / "a", stage, None)
    decided = [tuple(entry) for entry in stage.plan["replans"]]
    unbroken = run(tmp_path / "b", stage, None)
    assert [tuple(entry) for entry in stage.plan["replans"]] == decided
    assert all(ended[name].equal(unbroken[name]) for name in ended)
