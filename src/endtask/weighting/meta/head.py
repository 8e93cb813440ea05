"""The separate head of META-TARTAN, fitted to the features of a fixed encoder by a closed form or by a few steps."""

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
"""A function from features (n, H) to outputs (n, C)."""

IGNORED = -100  # ignore_index of torch.nn.functional.cross_entropy
_EPSILON = 1e-12

RIDGE = 1.0
"""Penalty of the closed form, in units of the features' mean squared length."""
HEAD_STEPS, HEAD_LEARNING_RATE, HEAD_WEIGHT_DECAY = 10, 1e-3, 0.1
"""Steps and options of AdamW for the head of the paper."""


class HeadTask(Protocol):
    """What a head predicts, for a form of task."""

    @property
    def outputs(self) -> int:
        """C, the number of outputs."""
        ...

    @property
    def ignored(self) -> float:
        """The target of a row that is ignored."""
        ...

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expected outputs (n, C), and 1 for rows that count or 0 for ignored ones (n,)."""
        ...

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """Return the outputs (C,) that predict the mean, and the Newton step per unit of residual from there."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the task's loss over the rows that count."""
        ...


@dataclass(frozen=True)
class Classes:
    """One of several classes for each row; targets (n,) are their numbers, `IGNORED` where there is none."""

    outputs: int
    ignored: float = IGNORED

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return one column per class."""
        is_class = targets[:, None] == torch.arange(self.outputs, device=targets.device)
        return is_class.to(torch.float32), (targets != IGNORED).to(torch.float32)

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """Return smoothed log shares, and the Newton step of softmax from equal shares."""
        smoothed = mean + 0.1 / self.outputs
        return (smoothed / smoothed.sum()).log(), float(self.outputs)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        total = functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="sum")
        return total / (targets != IGNORED).sum().clamp(min=1)


@dataclass(frozen=True)
class LabelSets:
    """Any of several labels for each row; targets (n, C) are 0 or 1, negative in rows that do not count."""

    outputs: int
    ignored: float = IGNORED

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets as they are."""
        return targets.clamp(min=0).to(torch.float32), (targets[:, 0] >= 0).to(torch.float32)

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """Return smoothed log odds, and the Newton step of a sigmoid from even odds."""
        return torch.logit(0.9 * mean + 0.05), 4.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy."""
        expected, counted = self.rows(targets)
        each = functional.binary_cross_entropy_with_logits(outputs, expected.to(outputs.dtype), reduction="none")
        return (each.mean(-1) * counted).sum() / counted.sum().clamp(min=1)


@dataclass(frozen=True)
class Scores:
    """A number for each row; targets (n,) are not finite where a row does not count."""

    outputs: int = 1
    ignored: float = math.nan

    def rows(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return a single column."""
        return targets.nan_to_num(0.0, 0.0, 0.0)[:, None], targets.isfinite().to(torch.float32)

    def start(self, mean: Tensor) -> tuple[Tensor, float]:
        """Return the mean itself."""
        return mean, 1.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error."""
        expected, counted = self.rows(targets)
        each = (outputs[:, 0] - expected[:, 0].to(outputs.dtype)).square()
        return (each * counted).sum() / counted.sum().clamp(min=1)


def fit_head(features: Tensor, targets: Tensor, task: HeadTask, settings: MetaConfig, seed: int) -> Head:
    """Return the fitted head that the settings name, without waiting for the device."""
    fixed = features.detach().to(torch.promote_types(features.dtype, torch.float32))
    if settings.head == "closed_form":
        return fit_closed_form(fixed, targets, task, RIDGE)
    return fit_by_steps(fixed, targets, task, seed)


@torch.no_grad()
def fit_closed_form(features: Tensor, targets: Tensor, task: HeadTask, ridge: float) -> Head:
    """Return the linear head after one regularised Newton step from the outputs of the mean: ridge regression.

    Solves a system of the n rows or of the H features, whichever are fewer.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]])
    >>> head = fit_closed_form(features, torch.tensor([0, 1, 0]), Classes(2), ridge=0.1)
    >>> head(features).argmax(-1)
    tensor([0, 1, 0])
    """
    expected, counted = (part.to(features.dtype) for part in task.rows(targets))
    rows = counted.sum().clamp(min=1)
    centre = (features * counted[:, None]).sum(0) / rows  # (H,)
    mean = (expected * counted[:, None]).sum(0) / rows  # (C,)
    centred = (features - centre) * counted[:, None]  # (n, H)
    start, newton_step = task.start(mean)
    residuals = newton_step * (expected - mean) * counted[:, None]  # (n, C)
    penalty = (ridge * centred.square().sum() / rows).clamp(min=_EPSILON)
    if len(centred) <= centred.shape[1]:
        weights = centred.T @ _solve(centred @ centred.T, penalty, residuals)  # (H, C)
    else:
        weights = _solve(centred.T @ centred, penalty, centred.T @ residuals)
    bias = start - centre @ weights
    return lambda rows: rows.to(weights.dtype) @ weights + bias


def _solve(products: Tensor, penalty: Tensor, right: Tensor) -> Tensor:
    """Return (products + penalty I)^-1 right, without a check for success, which would wait for the GPU."""
    lower = torch.linalg.cholesky_ex(products + penalty * torch.eye(len(products), device=products.device)).L
    half = torch.linalg.solve_triangular(lower, right, upper=False)
    solution: Tensor = torch.linalg.solve_triangular(lower.T, half, upper=True)
    return solution


def fit_by_steps(features: Tensor, targets: Tensor, task: HeadTask, seed: int) -> Head:
    """Return the paper's head (dense, tanh, dense), trained from random weights by a few steps of AdamW."""
    weights = _random_layers(features, task.outputs, seed)

    def head(rows: Tensor) -> Tensor:
        hidden = torch.tanh(functional.linear(rows.to(features.dtype), weights[0], weights[1]))
        return functional.linear(hidden, weights[2], weights[3])

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
    """Return weights initialised as PyTorch's linear layers, from a separate generator."""
    width = features.shape[1]
    random = torch.Generator(features.device).manual_seed(seed)
    bound = width**-0.5
    layers = [
        torch.empty(shape, dtype=features.dtype, device=features.device).uniform_(-bound, bound, generator=random)
        for shape in ((width, width), (width,), (outputs, width), (outputs,))
    ]
    return [layer.requires_grad_() for layer in layers]
