"""The learning rate of a step, and the number of its batches."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import get_scheduler, get_wsd_schedule

from endtask.config.training import PhaseSettings
from endtask.training.phase import ScheduleKind, batches_in_step, schedule_factor, warmup_steps_of

KINDS = st.sampled_from(["linear", "cosine", "constant"])
STEPS = st.integers(min_value=1, max_value=200)
FRACTIONS = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)


def curve(steps: int, warmup_steps: int, kind: ScheduleKind = "linear", decay_fraction: float = 0.0) -> list[float]:
    shape = {"steps": steps, "warmup_steps": warmup_steps}
    return [schedule_factor(step, **shape, kind=kind, decay_fraction=decay_fraction) for step in range(steps)]


@given(steps=STEPS, share=st.floats(min_value=0.0, max_value=1.0), kind=KINDS)
@settings(max_examples=80, deadline=None)
def test_the_rate_rises_to_its_peak_and_falls_but_never_to_nothing(
    steps: int, share: float, kind: ScheduleKind
) -> None:
    factors = curve(steps, int(steps * share), kind)
    top = factors.index(max(factors))
    assert max(factors) == 1.0
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    assert min(factors) > 0


def hugging_face(steps: int, warmup_steps: int, kind: ScheduleKind) -> list[float]:
    """The rates of their schedule, whose warm-up starts with a step at rate 0."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    name = "constant_with_warmup" if kind == "constant" else kind
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup_steps, num_training_steps=steps)
    rates = []
    for _ in range(steps + 1):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("steps", "warmup_steps"), [(20, 0), (20, 1), (20, 6), (20, 19), (1, 0)])
def test_hugging_face_agrees_but_for_one_step_of_warm_up(kind: ScheduleKind, steps: int, warmup_steps: int) -> None:
    theirs = hugging_face(steps, warmup_steps, kind)
    expected = [theirs[step + 1 if step < warmup_steps else step] for step in range(steps)]
    assert curve(steps, warmup_steps, kind) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("steps", "warmup_steps", "decay_fraction"), [(20, 0, 0.2), (20, 6, 0.5), (50, 5, 0.1), (20, 1, 0.95), (7, 2, 0.3)]
)
def test_hugging_face_agrees_on_a_rate_that_falls_at_the_end(
    steps: int, warmup_steps: int, decay_fraction: float
) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_wsd_schedule(
        optimizer,
        num_warmup_steps=warmup_steps,
        num_decay_steps=int(steps * decay_fraction),
        num_training_steps=steps,
        decay_type="linear",
    )
    theirs = []
    for _ in range(steps):
        theirs.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    ours = curve(steps, warmup_steps, "warmup_stable_decay", decay_fraction)
    assert ours[warmup_steps:] == pytest.approx(theirs[warmup_steps:], abs=1e-12)
    assert ours.count(1.0) == steps - warmup_steps - int(steps * decay_fraction) + 1 + bool(warmup_steps)


def test_a_warm_up_that_leaves_less_than_the_fall_wants_shortens_it() -> None:
    assert curve(4, 2, "warmup_stable_decay", 0.9) == [0.5, 1.0, 1.0, 0.5]


@given(steps=STEPS, share=st.floats(min_value=0.0, max_value=1.0), decay_fraction=FRACTIONS)
@settings(max_examples=80, deadline=None)
def test_a_rate_that_falls_at_the_end_rises_stays_and_falls_but_never_to_nothing(
    steps: int, share: float, decay_fraction: float
) -> None:
    warmup_steps = int(steps * share)
    factors = curve(steps, warmup_steps, "warmup_stable_decay", decay_fraction)
    assert min(factors) > 0
    assert max(factors) == 1.0
    assert factors[warmup_steps:] == sorted(factors[warmup_steps:], reverse=True)
    stable = steps - warmup_steps - int(steps * decay_fraction)
    assert all(factor == 1.0 for factor in factors[warmup_steps : warmup_steps + max(0, stable)])


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant"])
def test_a_phase_of_nothing_but_warm_up_ends_at_the_peak(kind: ScheduleKind) -> None:
    assert curve(4, 4, kind) == [0.25, 0.5, 0.75, 1.0]


def test_without_warm_up_the_first_step_has_the_peak() -> None:
    assert curve(4, 0) == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("given_settings", "expected"),
    [
        ({}, 10),
        ({"warmup_steps": 0.0}, 0),
        ({"warmup_steps": 0.255}, 25),
        ({"warmup_steps": 0}, 0),
        ({"warmup_steps": 7}, 7),
        ({"warmup_steps": 1000}, 10),
    ],
)
def test_warm_up_steps_given_outdo_the_share_and_end_with_the_phase(
    given_settings: dict[str, float], expected: int
) -> None:
    assert warmup_steps_of(PhaseSettings.model_validate(given_settings), 100) == expected


@given(steps=STEPS, accumulation=st.integers(min_value=1, max_value=40), ramp_fraction=FRACTIONS)
@settings(max_examples=80, deadline=None)
def test_the_ramp_is_a_straight_line_rounded_down(steps: int, accumulation: int, ramp_fraction: float) -> None:
    shape = {"steps": steps, "accumulation": accumulation, "ramp_fraction": ramp_fraction}
    counts = [batches_in_step(step, **shape) for step in range(steps)]
    ramp = int(steps * ramp_fraction)
    line = [1 + (accumulation - 1) * step // ramp for step in range(ramp)]
    assert counts == line + [accumulation] * (steps - ramp)
    assert all(earlier <= later for earlier, later in pairwise(counts))


def test_without_a_ramp_every_step_takes_all_batches() -> None:
    assert [batches_in_step(step, steps=3, accumulation=5, ramp_fraction=0.0) for step in range(3)] == [5, 5, 5]
