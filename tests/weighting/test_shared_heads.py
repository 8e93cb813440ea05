"""A head that several objectives train, with weights that are known after the backward passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from endtask.objectives.base import Loss
from endtask.training import optimizer as optimizer_module
from endtask.training.loop import build_optimizer, train
from endtask.training.optimizer import StepOutcome
from endtask.training.phase import Phase
from endtask.weighting.base import Rule, ScheduledObjective
from endtask.weighting.equal import Equal
from endtask.weighting.gradients import SharedHeads
from tests.training.numbers import Points, Regression, TwoLayers, number_phase

WEIGHTS = {"sum": 0.9, "first": 0.06, "apart": 0.04}


class Through(Regression):
    """A regression through a head of any name."""

    def __init__(self, name: str, head: str) -> None:
        super().__init__(name)
        self.heads = (head,)

    def loss(self, network: TwoLayers, batch: Points) -> Loss:
        found = network.heads[self.heads[0]](network.encoder(batch.inputs)).squeeze(1)
        value = (found - batch.targets).square().mean()
        return Loss(value, {"error": value})


class Told(Rule):
    """Weights that are known only when gradients are there; some of the objectives run."""

    def __init__(self, *running: str) -> None:
        self._running = running

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        return tuple(ScheduledObjective(name, 0.5, step) for name in self._running)

    def sees_gradients(self, step: int) -> bool:
        return True

    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: torch.tensor(weight) for name, weight in WEIGHTS.items()}


class Watching:
    """Stands where the optimizer does, and keeps the gradients of a step instead of stepping."""

    rate_scale = 1.0

    def __init__(self, network: TwoLayers) -> None:
        self._network = network
        self.gradients: dict[str, Tensor | None] = {}

    def step(self, factor: float) -> StepOutcome:
        named = self._network.named_parameters()
        self.gradients = {name: None if one.grad is None else one.grad.clone() for name, one in named}
        return StepOutcome(torch.tensor(1.0), torch.tensor(False))


def phase_of(*running: str, batches: int = 1, **changes: Any) -> Phase:
    objectives = {"sum": Through("sum", "sum"), "first": Through("first", "sum"), "apart": Through("apart", "first")}
    asked = {"weighting": Told(*running), "steps": 1, "accumulation": batches, **changes}
    return number_phase(objectives=objectives, **asked)


def gradients_of(phase: Phase) -> dict[str, Tensor | None]:
    watching: Any = Watching(phase.network)
    list(train(phase, watching))
    found: dict[str, Tensor | None] = watching.gradients
    return found


def by_hand(phase: Phase, counts: dict[str, float], batches: int) -> dict[str, Tensor]:
    """The gradient of a loss in which each objective counts so much, dropout off."""
    for name, count in counts.items():
        for number in range(batches):
            objective = phase.objectives[name]
            (count / batches * objective.loss(phase.network, objective.batch(number)).total).backward()
    found = {name: weight.grad for name, weight in phase.network.named_parameters() if weight.grad is not None}
    phase.network.zero_grad()
    return found


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("running", [("sum", "first", "apart"), ("first", "apart"), ("sum", "apart")])
def test_a_shared_head_learns_its_objectives_as_they_weigh_among_themselves(
    running: tuple[str, ...], batches: int
) -> None:
    phase = phase_of(*running, batches=batches)
    phase.network.encoder[2].p = 0.0
    encoder = by_hand(phase, {name: WEIGHTS[name] for name in running}, batches)
    heads = by_hand(phase, {name: 1.0 if name == "apart" else WEIGHTS[name] / 0.96 for name in running}, batches)
    found = gradients_of(phase)
    assert found.keys() == encoder.keys() == heads.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, (heads if name.startswith("heads.") else encoder)[name], msg=name)


def test_weights_that_stay_where_they_are_train_as_fixed_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam does not ask how long gradients are: that heads learn unweighted then changes nothing, shared or not."""
    monkeypatch.setattr(optimizer_module, "ADAM_EPSILON", 1e-12)
    fixed = Equal(*WEIGHTS, weights=list(WEIGHTS.values()))
    trained = []
    for rule in (Told(*WEIGHTS), fixed):
        phase = phase_of(*WEIGHTS, weighting=rule, steps=30, max_grad_norm=None)
        list(train(phase, build_optimizer(phase)))
        trained.append(phase.network.state_dict())
    before = TwoLayers().state_dict()
    for name, value in trained[0].items():
        assert not value.allclose(before[name])
        torch.testing.assert_close(value, trained[1][name], rtol=1e-3, atol=1e-5, msg=name)


def test_a_shared_head_that_nobody_reads_has_no_gradient() -> None:
    found = gradients_of(phase_of("apart"))
    assert found["heads.sum.weight"] is None
    assert found["heads.first.weight"] is not None


def test_heads_of_a_single_objective_are_left_alone() -> None:
    network = TwoLayers()
    heads = SharedHeads(network.heads, {name: Regression(name) for name in ("sum", "first")})
    network.heads["sum"](torch.ones(2, 8)).sum().backward()
    heads.collect("sum")
    heads.spread({"sum": torch.tensor(0.5), "first": torch.tensor(0.5)})
    assert network.heads["sum"].weight.grad is not None
    assert network.heads["sum"].weight.grad.eq(2).all()
