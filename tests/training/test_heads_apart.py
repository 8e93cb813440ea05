"""Heads with a weight decay, a learning rate and a gradient norm of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from endtask.config import PhaseSettings
from endtask.training.optimizer import Clipping, Optimizer

CPU = torch.device("cpu")


class Toy(nn.Module):
    """A body and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3)
        self.heads = nn.ModuleDict({"task": nn.Linear(3, 2), "masked_lm": nn.Linear(3, 4)})


def with_gradients(toy: Toy, seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    for weight in toy.parameters():
        weight.grad = 3 * torch.randn(weight.shape, generator=random)
    return {name: weight.grad.clone() for name, weight in toy.named_parameters() if weight.grad is not None}


def optimizer_of(
    toy: Toy, *, clip: Clipping = "global", head_weight_decay: float | None = None, **settings: Any
) -> Optimizer:
    return Optimizer(
        toy, PhaseSettings(**settings), CPU, learning_rate=0.1, clip=clip, head_weight_decay=head_weight_decay
    )


def side(name: str) -> str:
    return "heads" if name.startswith("heads.task") else "encoder"


def test_each_side_is_clipped_by_its_own_norm() -> None:
    """Against a step of the same optimizer without clipping, on gradients that were clipped by hand."""
    torch.manual_seed(0)
    toy, by_hand = Toy(), Toy()
    by_hand.load_state_dict(toy.state_dict())
    clipping = optimizer_of(toy, clip="task_heads", max_grad_norm=1.0)
    plain = optimizer_of(by_hand, max_grad_norm=None)
    for seed in range(3):
        gradients = with_gradients(toy, seed)
        squares = {"encoder": 0.0, "heads": 0.0}
        for name, gradient in gradients.items():
            squares[side(name)] += gradient.square().sum().item()
        for name, weight in by_hand.named_parameters():
            weight.grad = gradients[name] / max(1.0, squares[side(name)] ** 0.5)
        outcome = clipping.step(1.0)
        plain.step(1.0)
        assert outcome.grad_norm.item() == pytest.approx(sum(squares.values()) ** 0.5, rel=1e-5)
    for name, value in toy.state_dict().items():
        torch.testing.assert_close(value, by_hand.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


def test_short_gradients_are_left_alone() -> None:
    toy = Toy()
    optimizer = optimizer_of(toy, clip="task_heads", max_grad_norm=1e6)
    before = with_gradients(toy)
    together = Toy()
    together.load_state_dict(toy.state_dict())
    other = optimizer_of(together, max_grad_norm=None)
    for name, weight in together.named_parameters():
        weight.grad = before[name].clone()
    optimizer.step(1.0)
    other.step(1.0)
    assert all(value.equal(together.state_dict()[name]) for name, value in toy.state_dict().items())


def test_a_broken_gradient_still_skips_the_step() -> None:
    toy = Toy()
    optimizer = optimizer_of(toy, clip="task_heads")
    before = {name: value.clone() for name, value in toy.state_dict().items()}
    with_gradients(toy)
    assert toy.encoder.weight.grad is not None
    toy.encoder.weight.grad[0, 0] = float("nan")
    assert bool(optimizer.step(1.0).skipped)
    assert all(value.equal(before[name]) for name, value in toy.state_dict().items())


def test_heads_decay_at_their_own_rate() -> None:
    """With gradients of zero nothing moves a weight but its decay."""
    toy = Toy()
    before = {name: value.clone() for name, value in toy.state_dict().items()}
    optimizer = optimizer_of(toy, head_weight_decay=0.5, weight_decay=0.01, head_learning_rate=0.2)
    for weight in toy.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step(1.0)
    for name, value in toy.state_dict().items():
        rate, decay = (0.2, 0.5) if side(name) == "heads" else (0.1, 0.01)
        expected = before[name] * (1 - rate * decay) if value.ndim == 2 else before[name]
        torch.testing.assert_close(value, expected, msg=name)


def test_heads_that_learn_unweighted_are_clipped_each_by_itself() -> None:
    """All of them, the masked-LM head too, though its rate is the encoder's."""
    torch.manual_seed(0)
    toy, by_hand = Toy(), Toy()
    by_hand.load_state_dict(toy.state_dict())
    clipping = optimizer_of(toy, clip="each_head", max_grad_norm=1.0)
    plain = optimizer_of(by_hand, max_grad_norm=None)
    gradients = with_gradients(toy)
    norms = {
        part: sum(one.square().sum().item() for name, one in gradients.items() if name.startswith(part)) ** 0.5
        for part in ("encoder", *(f"heads.{head}." for head in toy.heads))
    }
    assert len(norms) > 2
    for name, weight in by_hand.named_parameters():
        weight.grad = gradients[name] / max(1.0, next(norm for part, norm in norms.items() if name.startswith(part)))
    clipping.step(1.0)
    plain.step(1.0)
    for name, value in toy.state_dict().items():
        torch.testing.assert_close(value, by_hand.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)
