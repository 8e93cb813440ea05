"""Gradients taken out of a body and put back weighted."""

from __future__ import annotations

import torch
from torch import nn

from endtask.train.body_gradients import collect, spread


def make_body() -> nn.Module:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2))
    body[2].weight.requires_grad = False
    return body


def test_what_is_collected_can_be_spread_again() -> None:
    body = make_body()
    body(torch.ones(5, 3)).square().sum().backward()
    before = {name: weight.grad.clone() for name, weight in body.named_parameters() if weight.grad is not None}
    flat = collect(body)
    assert flat.shape == (sum(gradient.numel() for gradient in before.values()),)
    assert all(weight.grad is None for weight in body.parameters())
    spread(body, {"a": flat, "b": flat}, {"a": torch.tensor(0.5), "b": torch.tensor(0.25)})
    after = {name: weight.grad for name, weight in body.named_parameters() if weight.grad is not None}
    assert after.keys() == before.keys()
    assert all(gradient.allclose(0.75 * before[name]) for name, gradient in after.items())


def test_a_weight_without_a_gradient_counts_zeros() -> None:
    body = make_body()
    body[1](torch.ones(5, 4)).sum().backward()  # the first layer has no part in it
    flat = collect(body)
    assert flat[:16].eq(0).all()
    assert flat[16:24].eq(5).all()
    spread(body, {"a": flat}, {"a": torch.tensor(1.0)})
    assert body[0].weight.grad is not None
    assert body[0].weight.grad.eq(0).all()
    assert body[2].weight.grad is None


def test_gradients_that_were_put_back_are_apart() -> None:
    body = make_body()
    flat = torch.zeros(sum(weight.numel() for weight in body.parameters() if weight.requires_grad))
    spread(body, {"a": flat}, {"a": torch.tensor(1.0)})
    assert body[0].weight.grad is not None
    assert body[0].bias.grad is not None
    body[0].weight.grad.add_(1)
    assert body[0].bias.grad.eq(0).all()
