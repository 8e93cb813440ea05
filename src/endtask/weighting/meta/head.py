"""The separate head of META-TARTAN: fitted anew to features of a fixed body, by one formula or a few steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from endtask.weighting.meta.config import MetaConfig

Head = Callable[[Tensor], Tensor]
"""Features (n, H) to outputs (n, C)."""

IGNORED = -100  # torch.nn.functional.cross_entropy leaves these out
_SMALLEST = 1e-12

RIDGE = 1.0
"""Penalty of the closed form, in units of the features' mean squared length."""
HEAD_STEPS, HEAD_LEARNING_RATE, HEAD_WEIGHT_DECAY = 10, 1e-3, 0.1
"""AdamW's, for the head of the paper."""


class HeadTask(Protocol):
    """What a head is to say, for one kind of task."""

    @property
    def outputs(self) -> int:
        """C: how many numbers it says."""
        ...

    @property
    def nothing(self) -> float:
        """The target of a row that does not count."""
        ...

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Wanted outputs (n, C) as numbers, and which rows count (n,): 1 or 0."""
        ...

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """The outputs (C,) that say the mean of what is wanted, and how far to go from there for each unit missing."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The task's loss, rows that do not count left out."""
        ...


@dataclass(frozen=True)
class Classes:
    """One of several classes for each row; targets (n,) are their numbers, `IGNORED` where there is none."""

    outputs: int
    nothing: float = IGNORED

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """One column per class."""
        wanted = targets[:, None] == torch.arange(self.outputs, device=targets.device)
        return wanted.to(torch.float32), (targets != IGNORED).to(torch.float32)

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """Log shares, smoothed; of softmax a Newton step from equal shares is so many times the missing share."""
        smoothed = mean + 0.1 / self.outputs
        return (smoothed / smoothed.sum()).log(), float(self.outputs)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy."""
        total = functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="sum")
        return total / (targets != IGNORED).sum().clamp(min=1)


@dataclass(frozen=True)
class LabelSets:
    """Any of several labels for each row; targets (n, C) are 0 or 1, negative in rows that do not count."""

    outputs: int
    nothing: float = IGNORED

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """As they are."""
        return targets.clamp(min=0).to(torch.float32), (targets[:, 0] >= 0).to(torch.float32)

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """Log odds, smoothed; a Newton step from even odds is four times the missing share."""
        return torch.logit(0.9 * mean + 0.05), 4.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean binary cross-entropy."""
        wanted, counts = self.rows(targets)
        each = functional.binary_cross_entropy_with_logits(outputs, wanted.to(outputs.dtype), reduction="none")
        return (each.mean(-1) * counts).sum() / counts.sum().clamp(min=1)


@dataclass(frozen=True)
class Scores:
    """A number for each row; targets (n,) are not finite where a row does not count."""

    outputs: int = 1
    nothing: float = math.nan

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """One column."""
        return targets.nan_to_num(0.0, 0.0, 0.0)[:, None], targets.isfinite().to(torch.float32)

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """The mean itself."""
        return mean, 1.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error."""
        wanted, counts = self.rows(targets)
        each = (outputs[:, 0] - wanted[:, 0].to(outputs.dtype)).square()
        return (each * counts).sum() / counts.sum().clamp(min=1)


def fit_head(features: Tensor, targets: Tensor, task: HeadTask, settings: MetaConfig, seed: int) -> Head:
    """The head that the settings ask for; nothing in here waits for the device."""
    fixed = features.detach().to(torch.promote_types(features.dtype, torch.float32))
    if settings.head == "closed_form":
        return fit_closed_form(fixed, targets, task, RIDGE)
    return fit_by_steps(fixed, targets, task, seed)


@torch.no_grad()
def fit_closed_form(features: Tensor, targets: Tensor, task: HeadTask, ridge: float) -> Head:
    """One Newton step of the regularised linear model, from the answer that fits the mean: ridge regression.

    Solved among the n rows or the H features, whichever are fewer.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]])
    >>> head = fit_closed_form(features, torch.tensor([0, 1, 0]), Classes(2), ridge=0.1)
    >>> head(features).argmax(-1)
    tensor([0, 1, 0])
    """
    wanted, counts = (part.to(features.dtype) for part in task.rows(targets))
    number = counts.sum().clamp(min=1)
    centre = (features * counts[:, None]).sum(0) / number  # (H,)
    mean = (wanted * counts[:, None]).sum(0) / number  # (C,)
    apart = (features - centre) * counts[:, None]  # (n, H)
    start, pace = task.start(mean)
    missing = pace * (wanted - mean) * counts[:, None]  # (n, C)
    penalty = (ridge * apart.square().sum() / number).clamp(min=_SMALLEST)
    if len(apart) <= apart.shape[1]:
        weights = apart.T @ _solved(apart @ apart.T, penalty, missing)  # (H, C)
    else:
        weights = _solved(apart.T @ apart, penalty, apart.T @ missing)
    bias = start - centre @ weights
    return lambda given: given.to(weights.dtype) @ weights + bias


def _solved(products: Tensor, penalty: Tensor, right: Tensor) -> Tensor:
    """(products + penalty I)^-1 right; nobody asks whether that went well, for which a GPU would be waited for."""
    lower = torch.linalg.cholesky_ex(products + penalty * torch.eye(len(products), device=products.device)).L
    half = torch.linalg.solve_triangular(lower, right, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(lower.T, half, upper=True)
    return solved


def fit_by_steps(features: Tensor, targets: Tensor, task: HeadTask, seed: int) -> Head:
    """The paper's head, dense, tanh, dense, from random weights by a few steps of AdamW on the whole batch."""
    weights = _random_layers(features, task.outputs, seed)

    def head(given: Tensor) -> Tensor:
        inner = torch.tanh(functional.linear(given.to(features.dtype), weights[0], weights[1]))
        return functional.linear(inner, weights[2], weights[3])

    optimizer = torch.optim.AdamW(weights, lr=HEAD_LEARNING_RATE, weight_decay=HEAD_WEIGHT_DECAY)
    with torch.enable_grad():
        for _ in range(HEAD_STEPS):
            loss = task.loss(head(features), targets)
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.grad = gradient
            optimizer.step()
    for weight in weights:
        weight.requires_grad_(False)
    return head


def _random_layers(features: Tensor, outputs: int, seed: int) -> list[Tensor]:
    """Weights by PyTorch's own rule for linear layers, from a generator of their own."""
    width = features.shape[1]
    random = torch.Generator(features.device).manual_seed(seed)
    bound = width**-0.5
    layers = [
        torch.empty(shape, dtype=features.dtype, device=features.device).uniform_(-bound, bound, generator=random)
        for shape in ((width, width), (width,), (outputs, width), (outputs,))
    ]
    return [layer.requires_grad_() for layer in layers]
