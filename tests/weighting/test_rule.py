"""The update of learned weights from gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from endtask.training.loop import train
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.weighting.meta.rule import Meta

from .points import CPU, PlainSteps, meta_settings, point_phase

NO, YES = torch.tensor(False), torch.tensor(True)


class Given:
    """A held-out gradient along the first of three weights."""

    parts: Sequence[slice] = (slice(0, 3),)

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, step: int) -> Tensor:
        self.asked.append(step)
        return torch.tensor([2.0, 0.0, 0.0])


def rule_of(*names: str, gradient: Given | None = None, **changes: Any) -> Meta:
    return Meta(names, gradient or Given(), settings=meta_settings(**changes), device=CPU)


def towards(*cosines: float) -> list[Tensor]:
    """Gradients of length 3 at these cosines to the held-out one."""
    return [3 * torch.tensor([cosine, math.sqrt(1 - cosine**2), 0.0]) for cosine in cosines]


def step(rule: Meta, number: int, *cosines: float, skipped: Tensor = NO) -> dict[str, float]:
    names = [turn.objective for turn in rule.schedule(number)]
    weights = rule.weigh(number, dict(zip(names, towards(*cosines), strict=True)))
    rule.after_step(number, skipped)
    return {name: weight.item() for name, weight in weights.items()}


def test_weights_start_equal_and_follow_the_cosines() -> None:
    rule = rule_of("task", "mlm", "other")
    assert rule.state()["logits"].tolist() == pytest.approx([1 / 3] * 3)
    assert step(rule, 0, 0.0, 0.0, 0.0) == pytest.approx({"task": 1 / 3, "mlm": 1 / 3, "other": 1 / 3})
    found = step(rule, 1, 1.0, 0.5, -0.5)
    whole = sum(math.exp(0.1 * cosine) for cosine in (1.0, 0.5, -0.5))
    assert found["mlm"] == pytest.approx(math.exp(0.05) / whole)
    assert rule.values()["cosine/other"].item() == pytest.approx(-0.5)
    assert rule.values()["weight/mlm"].item() == pytest.approx(found["mlm"])


def test_weights_start_where_they_are_told_and_move_from_there() -> None:
    names, start = ("task", "mlm", "other"), [1.0, 20.0, 399.0]
    rule = Meta(names, Given(), settings=meta_settings(floor=0.5), device=CPU, start=start)
    assert list(step(rule, 0, 0.0, 0.0, 0.0).values()) == pytest.approx([1 / 420, 20 / 420, 399 / 420])
    found = step(rule, 1, 1.0, 0.5, -0.5)
    moved = [share * math.exp(0.1 * cosine) for share, cosine in zip(start, (1.0, 0.5, -0.5), strict=True)]
    expected = [0.5 * share / 420 + 0.5 * one / sum(moved) for share, one in zip(start, moved, strict=True)]
    assert list(found.values()) == pytest.approx(expected)


def test_the_weight_of_the_task_can_grow_over_the_first_steps() -> None:
    rule = Meta(["task", "mlm"], Given(), settings=meta_settings(task_warmup=0.5, floor=0), device=CPU, steps=8)
    for number in range(8):
        found = step(rule, number, 0.0, 0.0)
        grown = min(1.0, (number + 1) / 4)
        assert found["task"] == pytest.approx(grown / (1 + grown))
        assert sum(found.values()) == pytest.approx(1.0)
        assert rule.values()["weight/task"].item() == pytest.approx(found["task"])


@pytest.mark.parametrize("start", [[1.0], [1.0, 0.0]])
def test_a_start_that_fits_no_objectives_is_refused(start: list[float]) -> None:
    with pytest.raises(ValueError, match="2 objectives need as many weights above 0"):
        Meta(["task", "mlm"], Given(), settings=meta_settings(), device=CPU, start=start)


@pytest.mark.parametrize("names", [(), ("a", "a")])
def test_objectives_without_names_of_their_own_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="names of their own"):
        rule_of(*names)


def test_only_the_counted_parts_are_compared() -> None:
    gradient = Given()
    gradient.parts = (slice(0, 1), slice(2, 3))
    rule = rule_of("task", "mlm", gradient=gradient)
    step(rule, 0, 0.3, -0.3)
    assert rule.values()["cosine/task"].item() == pytest.approx(1.0)
    assert rule.values()["cosine/mlm"].item() == pytest.approx(-1.0)


def test_a_gradient_of_zeros_moves_nothing() -> None:
    rule = rule_of("task", "mlm")
    rule.weigh(0, {"task": torch.zeros(3), "mlm": torch.zeros(3)})
    rule.after_step(0, NO)
    assert rule.state()["logits"].tolist() == [0.5, 0.5]


def test_a_skipped_step_teaches_nothing() -> None:
    rule = rule_of("task", "mlm")
    before = {name: value.clone() for name, value in rule.state().items()}
    rule.weigh(0, {"task": torch.full((3,), math.nan), "mlm": torch.ones(3)})
    rule.after_step(0, YES)
    assert all(value.equal(before[name]) for name, value in rule.state().items())
    step(rule, 1, 0.9, 0.1)
    assert rule.state()["logits"][0] > rule.state()["logits"][1]


def test_every_third_step_looks_and_moves_three_times_as_far() -> None:
    gradient = Given()
    rule = rule_of("task", "mlm", gradient=gradient, every=3)
    found = [step(rule, number, 1.0, 0.0)["task"] for number in range(6)]
    assert gradient.asked == [0, 3]
    assert found[0] == found[1] == found[2] < found[3] == found[4] == found[5]
    assert rule.state()["logits"].tolist() == pytest.approx([0.5 + 2 * 0.3, 0.5])
    assert all(rule.sees_gradients(number) for number in range(6))


def test_a_cosine_is_told_once_where_it_was_looked_at() -> None:
    """A reader of the curves could not tell an old one from a new one."""
    rule = rule_of("task", "mlm", every=2)
    assert all(value.isnan() for name, value in rule.values().items() if name.startswith("cosine/"))
    for number in range(8):
        step(rule, number, 1.0, 0.5, skipped=YES if number == 6 else NO)
        found = {name.removeprefix("cosine/") for name, value in rule.values().items() if value.isfinite()}
        told = {name for name in found if not name.startswith("weight/")}
        assert told == ({"task", "mlm"} if number in (0, 2, 4) else set())


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.5])
def test_no_weight_falls_below_the_floor_and_all_add_up_to_one(floor: float) -> None:
    rule = rule_of("task", "mlm", "other", floor=floor, learning_rate=100.0)
    found = step(rule, 0, 1.0, 0.0, -1.0)
    assert min(found.values()) == pytest.approx(floor / 3)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["task"] == pytest.approx(1 - 2 * floor / 3)


@pytest.mark.parametrize("state", [{}, {"weights": torch.ones(2)}, {"logits": torch.ones(3)}])
def test_a_state_that_does_not_fit_is_refused(state: dict[str, Tensor]) -> None:
    rule = rule_of("task", "mlm")
    with pytest.raises(ValueError, match="2 learned weights do not fit"):
        rule.load_state(state)
    whole = rule_of("task", "mlm", "other").state()
    with pytest.raises(ValueError, match="do not fit"):
        rule.load_state(whole)


def test_what_was_loaded_is_apart_from_where_it_came_from() -> None:
    rule, other = rule_of("task", "mlm"), rule_of("task", "mlm")
    step(rule, 0, 1.0, 0.0)
    state = rule.state()
    other.load_state(state)
    state["logits"].zero_()
    assert other.state()["logits"].tolist() == pytest.approx([0.6, 0.5])


def float32_phase(**changes: Any) -> Phase:
    phase = point_phase(("task", "one", "two", "three"), steps=9, **changes)
    phase.network.float()
    return phase


@pytest.mark.parametrize(
    "changes",
    [{}, {"every": 2, "head": "adamw"}, {"floor": 0.2}],
    ids=["plain", "every", "floor"],
)
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    whole, first, second = (float32_phase(**changes) for _ in range(3))
    run_phase(whole, tmp_path / "whole", label="whole")

    class Killed(Exception):
        pass

    def kill_at_six() -> None:
        calls.append(0)
        if len(calls) == 2:
            raise Killed

    calls: list[int] = []
    cut = {"settings": first.settings.model_copy(update={"checkpoint_steps": 3})}
    with pytest.raises(Killed):
        run_phase(Phase(**{**vars(first), **cut}), tmp_path / "cut", label="cut", on_checkpoint=kill_at_six)
    run_phase(Phase(**{**vars(second), **cut}), tmp_path / "cut", label="cut")
    for name, value in whole.weighting.state().items():
        assert value.equal(second.weighting.state()[name]), name
    for name, value in whole.network.state_dict().items():
        assert value.equal(second.network.state_dict()[name]), name
    assert whole.weighting.state()["logits"].unique().numel() > 1


def test_a_broken_step_leaves_the_weights_of_objectives_alone() -> None:
    phase = point_phase(steps=3)
    optimizer = PlainSteps(phase.network, 0.1, broken=frozenset({1}))
    states = [phase.weighting.state()["logits"].tolist() for _ in train(phase, optimizer)]  # type: ignore[arg-type]
    assert states[0] == states[1] != states[2]
