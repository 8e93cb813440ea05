"""AdamW over stacked weights; each trial has its own learning rate and its own clipping."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from endtask.config import PhaseSettings
from endtask.experiments.few_shot.stacked_heads import Weights
from endtask.training.optimizer import ADAM_BETA1, ADAM_EPSILON


class StackedAdamW:
    """The optimizer of `training/optimizer.py` at a constant learning rate, for R heads with as few kernels as for one.

    Weight decay is for matrices only; gradients longer than `max_grad_norm` are scaled down, trial by trial. A trial
    with a gradient that is not finite has no finite perplexity from there on.
    """

    def __init__(self, weights: Weights, rates: Sequence[float], settings: PhaseSettings) -> None:
        self._max_grad_norm = settings.max_grad_norm
        # Views of the weights of neighbors with one learning rate: mostly one tensor for each name.
        self._lengths = [len(list(alike)) for _, alike in groupby(rates)]
        self._parts = {name: value.split_with_sizes(self._lengths) for name, value in weights.items()}
        groups = [
            {"params": [part], "lr": rate, "weight_decay": settings.weight_decay if part.ndim > 2 else 0.0}
            for parts in self._parts.values()
            for part, (rate, _) in zip(parts, groupby(rates), strict=True)
        ]
        betas = (ADAM_BETA1, settings.adam_beta2)
        self._adamw = torch.optim.AdamW(groups, betas=betas, eps=ADAM_EPSILON, fused=True)

    @torch.no_grad()
    def step(self, gradients: Weights) -> None:
        """Update all weights in place."""
        # The fused kernel reads a gradient in the order of its weight.
        gradients = {name: gradient.contiguous() for name, gradient in gradients.items()}
        factors = self._clip_factors(gradients)
        for name, parts in self._parts.items():
            gradient = gradients[name]
            if factors is not None:
                gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))
            for part, own in zip(parts, gradient.split_with_sizes(self._lengths), strict=True):
                part.grad = own
        self._adamw.step()

    def _clip_factors(self, gradients: Weights) -> Tensor | None:
        """Return what each trial's gradients are multiplied by: (R,)."""
        if self._max_grad_norm is None:
            return None
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
        factors: Tensor = 1.0 / (norms / self._max_grad_norm).clamp(min=1.0)
        return factors
