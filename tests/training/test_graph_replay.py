"""Recorded steps: checks without a GPU, and equality of the steps on a GPU."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from endtask.encoders.batch import BatchShape, Layout, TextBatch, lay_out_tokens
from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import Loss
from endtask.training.graph_replay import Backward, FormedBatch, _Recording, accumulate_gradients
from endtask.training.loop import build_optimizer, train
from endtask.weighting.interleave import Interleave

from .numbers import Learned, number_phase

CPU = DeviceContext(torch.device("cpu"))


def batch_of(*lengths: int, fixed_shape: BatchShape | None = None, seed: int = 0) -> TextBatch:
    """Texts of random tokens."""
    tokens = np.random.default_rng(seed).integers(5, 50, sum(lengths))
    layout = Layout(0, 8, grid=False, fixed_shape=fixed_shape)
    return lay_out_tokens(tokens, np.array(lengths), np.array(lengths), layout)


def test_batches_that_fill_one_room_have_one_form_and_others_have_not() -> None:
    fixed_shape = BatchShape(tokens=32, texts=8)
    one, other = batch_of(3, 8, 5, fixed_shape=fixed_shape), batch_of(8, 2, seed=1, fixed_shape=fixed_shape)
    assert one.form == other.form
    assert one.form != batch_of(3, 8, 5).form
    assert one.form != replace(one, labels=torch.zeros(8)).form
    assert one.form != replace(one, even=True).form


def test_a_batch_is_written_over_another() -> None:
    fixed_shape = BatchShape(tokens=32, texts=8)
    one, other = batch_of(3, 8, 5, fixed_shape=fixed_shape), batch_of(8, 2, seed=1, fixed_shape=fixed_shape)
    assert isinstance(one, FormedBatch)
    places = {field.name: id(getattr(other, field.name)) for field in fields(other)}
    one.copy_into(other)
    for field in fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, Tensor):
            assert torch.equal(mine, theirs), field.name
            assert id(theirs) == places[field.name]


def test_gradients_are_given_or_added() -> None:
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    first.grad = torch.ones(2)
    given = torch.full((2,), 3.0)
    accumulate_gradients([(first, torch.full((2,), 2.0)), (second, given)])
    assert first.grad.tolist() == [3.0, 3.0]
    assert second.grad is given


class Numbers:
    """A batch of one number."""

    real_tokens = padded_tokens = 1

    def __init__(self, value: float) -> None:
        self.value = torch.tensor(value)

    form = "number"

    def to(self, device: torch.device) -> Numbers:
        return self

    def pin(self) -> Numbers:
        return self

    def copy_into(self, other: Numbers) -> None:
        other.value.copy_(self.value)


class Product:
    """The loss is weight x number, so the gradient is the number."""

    name, heads, passes, replayable = "product", (), 1, True

    def loss(self, network: Any, batch: Numbers) -> Loss:
        value = (network.weight * batch.value).sum()
        return Loss(value, {"product": value})


class Emulated(Backward):
    """Records on a CPU: a replay computes anew, in the memory of the recording, from what was written there."""

    def __init__(self, network: Any, context: DeviceContext) -> None:
        super().__init__(network, context)
        self._records = True
        self.recorded: list[str] = []

    def _record(self, objective: Any, batch: Any) -> _Recording:
        self.recorded.append(objective.name)
        own, weight = deepcopy(batch), torch.ones(())
        weights = [one for one in self._network.parameters() if one.requires_grad]

        def compute() -> tuple[dict[str, Tensor], list[Tensor | None]]:
            loss = objective.loss(self._network, own)
            return loss.parts, list(torch.autograd.grad(weight * loss.total, weights, allow_unused=True))

        state = torch.get_rng_state()
        parts, gradients = compute()
        torch.set_rng_state(state)
        kept = [(one, found.clone()) for one, found in zip(weights, gradients, strict=True) if found is not None]
        memory = {name: value.detach().clone() for name, value in parts.items()}
        graph = Again(compute, memory, [context for _, context in kept])
        return _Recording(graph, own, weight, memory, kept)  # type: ignore[arg-type]


class Again:
    """A graph: all of a computation, into the same memory."""

    def __init__(self, compute: Any, parts: dict[str, Tensor], gradients: list[Tensor]) -> None:
        self._compute, self._parts, self._gradients = compute, parts, gradients

    def replay(self) -> None:
        with torch.enable_grad():
            parts, gradients = self._compute()
        for name, value in parts.items():
            self._parts[name].copy_(value.detach())
        for context, found in zip(self._gradients, [one for one in gradients if one is not None], strict=True):
            context.copy_(found)


def make_emulated() -> tuple[Emulated, nn.Linear]:
    """For a network of one weight, which is 2."""
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, 2.0)
    return Emulated(network, CPU), network


def test_a_few_batches_are_computed_then_all_are_replayed() -> None:
    backward, network = make_emulated()
    for step in range(8):
        parts = backward(Product(), Numbers(float(step)), 0.5)  # type: ignore[arg-type]
        assert parts["product"].item() == 2.0 * step
        assert network.weight.grad.item() == 0.5 * step
        assert backward.recorded == (["product"] if step >= 3 else [])
        network.weight.grad = None


def test_several_batches_of_a_step_add_up() -> None:
    backward, network = make_emulated()
    for _ in range(3):
        backward(Product(), Numbers(1.0), 1.0)  # type: ignore[arg-type]
    network.weight.grad = None
    first = backward(Product(), Numbers(1.0), 1.0)  # type: ignore[arg-type]
    backward(Product(), Numbers(2.0), 1.0)  # type: ignore[arg-type]
    backward(Product(), Numbers(4.0), 0.25)  # type: ignore[arg-type]
    assert network.weight.grad.item() == 4.0
    assert first["product"].item() == 2.0  # its own, not the memory that the next replay writes to


def test_what_cannot_be_recorded_is_computed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backward, network = make_emulated()

    def fail(objective: Any, batch: Any) -> _Recording:
        raise RuntimeError("no graph today\nwith details")

    monkeypatch.setattr(backward, "_record", fail)
    for step in range(6):
        backward(Product(), Numbers(float(step)), 1.0)  # type: ignore[arg-type]
        assert network.weight.grad.item() == step
        network.weight.grad = None
    said = capsys.readouterr()
    assert (said.out + said.err).count("without CUDA graphs (no graph today)") == 1


def test_large_batches_of_large_networks_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    backward, _ = make_emulated()
    monkeypatch.setattr("endtask.training.graph_replay._MOST_FLOPS", 1)
    for _ in range(6):
        backward(Product(), Numbers(1.0), 1.0)  # type: ignore[arg-type]
    assert backward.recorded == []


def test_objectives_that_do_not_say_so_are_not_recorded() -> None:
    class Unsure(Product):
        replayable = False

    backward, _ = make_emulated()
    for _ in range(6):
        backward(Unsure(), Numbers(1.0), 1.0)  # type: ignore[arg-type]
    assert backward.recorded == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"accumulation": 3},
        {"accumulation": 4, "ramp_fraction": 0.5},
        {"update_unused_heads": True, "weighting": Interleave("sum", "first", rho1=3)},
        {"weighting": Interleave("sum", "first", rho1=2), "accumulation": 2, "max_grad_norm": 0.01},
    ],
    ids=["equal", "accumulated", "ramp", "interleaved", "both"],
)
@pytest.mark.parametrize("learned", [False, True])
def test_a_loop_of_replays_trains_as_any_other(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], learned: bool
) -> None:
    """With weights that are given or learned; losses kept from earlier steps are not written over."""
    made: list[Emulated] = []

    def emulate(network: Any, context: DeviceContext) -> Emulated:
        made.append(Emulated(network, context))
        return made[-1]

    ends = []
    for backward in (Backward, emulate):
        monkeypatch.setattr("endtask.training.loop.Backward", backward)
        phase = number_phase(**{"steps": 20, **changes, **({"weighting": Learned()} if learned else {})})
        records = list(train(phase, build_optimizer(phase)))
        losses = [value.item() for record in records for _, value in sorted(record.losses.items())]
        ends.append((losses, {name: value.tolist() for name, value in phase.network.state_dict().items()}))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-6)
    for name, values in ends[0][1].items():
        assert np.allclose(values, ends[1][1][name], rtol=1e-5, atol=1e-7), name
    assert made[0].recorded
