"""AdamW over weights with runs in front, each run with its own rate and its own clipping."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from endtask.few_examples.stacked_heads import Weights
from endtask.settings import PhaseSettings


class StackedAdamW:
    """What `train/optimizer.py` does to one head at a constant rate, done to R heads by as few kernels.

    Weight decay is for matrices only; gradients longer than `max_grad_norm` are scaled down, run by run. Steps without
    a finite gradient are not told apart: such a run has no finite perplexity from there on.
    """

    def __init__(self, weights: Weights, rates: Sequence[float], settings: PhaseSettings) -> None:
        self._max_grad_norm = settings.max_grad_norm
        self._parts = {name: value.unbind() for name, value in weights.items()}  # views: R of each weight
        alike: dict[tuple[float, float], list[Tensor]] = {}
        for parts in self._parts.values():
            for rate, part in zip(rates, parts, strict=True):
                alike.setdefault((rate, settings.weight_decay if part.ndim >= 2 else 0.0), []).append(part)
        groups = [{"params": parts, "lr": rate, "weight_decay": decay} for (rate, decay), parts in alike.items()]
        betas = (settings.adam_beta1, settings.adam_beta2)
        self._adamw = torch.optim.AdamW(groups, betas=betas, eps=settings.adam_epsilon, fused=True)

    @torch.no_grad()
    def step(self, gradients: Weights) -> None:
        """Update all weights in place."""
        # The fused kernel reads a gradient in the order of its weight.
        gradients = {name: gradient.contiguous() for name, gradient in gradients.items()}
        shrink = self._shrink(gradients)
        for name, parts in self._parts.items():
            gradient = gradients[name]
            if shrink is not None:
                gradient.mul_(shrink.view(-1, *[1] * (gradient.ndim - 1)))
            for part, one in zip(parts, gradient.unbind(), strict=True):
                part.grad = one
        self._adamw.step()

    def _shrink(self, gradients: Weights) -> Tensor | None:
        """What each run's gradients are multiplied by: (R,)."""
        if self._max_grad_norm is None:
            return None
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
        shrink: Tensor = 1.0 / (norms / self._max_grad_norm).clamp(min=1.0)
        return shrink
