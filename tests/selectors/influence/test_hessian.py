"""Gradient products and the Hessian influence of ISS, Eq. 3, against retraining.

A logistic regression is small enough for an explicit Hessian and for training to the end. Its "candidates" have another
loss than its "targets", as masked LM is another loss than the task's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch.func import grad, hessian

from endtask.gradients.rows import Block, Gradients, LinearRows
from endtask.gradients.targets import products

SIZE, TRAIN, CANDIDATES, TARGETS = 6, 200, 40, 10
_UPWEIGHT = 1e-6


def make_data(seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    truth = torch.randn(SIZE, generator=random, dtype=torch.float64)

    def rows(count: int) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(count, SIZE, generator=random, dtype=torch.float64)
        noise = torch.randn(count, generator=random, dtype=torch.float64)
        return inputs, (inputs @ truth + noise > 0).double()

    parts = {"train": rows(TRAIN), "candidate": rows(CANDIDATES), "target": rows(TARGETS)}
    return {f"{name}_{what}": part for name, pair in parts.items() for what, part in zip("xy", pair, strict=True)}


def task_loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(x @ weights, y)


def candidate_loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (torch.tanh(x @ weights) - (2 * y - 1)).square().mean()


def total_loss(weights: Tensor, data: dict[str, Tensor], candidate: int | None = None) -> Tensor:
    """What is trained: the task and a little of the candidates' loss; one of them may count for more."""
    everything = task_loss(weights, data["train_x"], data["train_y"]) + 0.05 * weights.square().sum()
    if candidate is None:
        return everything
    return everything + _UPWEIGHT * candidate_loss(
        weights, data["candidate_x"][candidate], data["candidate_y"][candidate]
    )


def trained(data: dict[str, Tensor], candidate: int | None = None, start: Tensor | None = None) -> Tensor:
    """Newton's method, to the last bit."""
    weights = torch.zeros(SIZE, dtype=torch.float64) if start is None else start
    for _ in range(20):
        slope = grad(total_loss)(weights, data, candidate)
        if float(slope.norm()) < 1e-13:
            return weights
        weights = weights - torch.linalg.solve(hessian(total_loss)(weights, data, candidate), slope)
    raise AssertionError("training has not come to an end")


def rows_of(loss: Callable[[Tensor, Tensor, Tensor], Tensor], weights: Tensor, x: Tensor, y: Tensor) -> Gradients:
    """The gradients of single rows, as the engine has those of a Linear with one output."""
    one = torch.ones(1, dtype=torch.float64)
    outputs = (x @ weights)[:, None]
    left = torch.stack([grad(loss)(output, one, answer) for output, answer in zip(outputs, y, strict=True)])
    rows = LinearRows(left=left, right=x, owners=torch.arange(len(x)))
    return Gradients(len(x), {Block("W", 1, SIZE): (rows,)})


def product(data: dict[str, Tensor]) -> Tensor:
    """What the selector computes: (candidates, targets)."""
    weights = trained(data)
    candidates = rows_of(candidate_loss, weights, data["candidate_x"], data["candidate_y"])
    return products(candidates, rows_of(task_loss, weights, data["target_x"], data["target_y"]))


def influence(data: dict[str, Tensor]) -> Tensor:
    """How far each target's loss falls for each candidate: (candidates, targets); positive is helpful."""
    weights = trained(data)
    ones = torch.stack(
        [grad(candidate_loss)(weights, x, y) for x, y in zip(data["candidate_x"], data["candidate_y"], strict=True)]
    )
    others = torch.stack(
        [grad(task_loss)(weights, x, y) for x, y in zip(data["target_x"], data["target_y"], strict=True)]
    )
    return ones @ torch.linalg.inv(hessian(total_loss)(weights, data)) @ others.T


def retrained_falls(data: dict[str, Tensor]) -> Tensor:
    """The same from training with each candidate once more: leave-one-in."""
    before = trained(data)
    lines = []
    for candidate in range(CANDIDATES):
        after = trained(data, candidate, before)
        pairs = list(zip(data["target_x"], data["target_y"], strict=True))
        lines.append(torch.stack([task_loss(before, x, y) - task_loss(after, x, y) for x, y in pairs]))
    return torch.stack(lines) / _UPWEIGHT


def test_the_hessian_influence_is_what_retraining_gives() -> None:
    data = make_data()
    expected = retrained_falls(data)
    found = influence(data)
    assert float((found - expected).abs().max()) < 1e-3 * float(expected.abs().max())


def test_the_product_ranks_candidates_as_retraining_does() -> None:
    data = make_data()
    expected, found = retrained_falls(data), product(data)
    each = [spearmanr(found[:, target], expected[:, target]).statistic for target in range(TARGETS)]
    assert min(each) > 0.8
    assert spearmanr(found.mean(1), expected.mean(1)).statistic > 0.9
    signs = (found.sign() == expected.sign()).double().mean()
    assert float(signs) > 0.9
