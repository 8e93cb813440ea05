"""Gradients of single objectives on the shared body, as flat vectors, for weightings that look at them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def collect(body: nn.Module) -> Tensor:
    """Take the gradient out of the body's weights: (P,), zeros where a weight has none."""
    weights = [weight for weight in body.parameters() if weight.requires_grad]
    flat = torch.cat([torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for w in weights])
    for weight in weights:
        weight.grad = None
    return flat


def spread(body: nn.Module, gradients: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Put the weighted sum of flat gradients back into the body's weights."""
    total = sum(weights[name] * gradient for name, gradient in gradients.items())
    assert isinstance(total, Tensor)
    start = 0
    for weight in body.parameters():
        if weight.requires_grad:
            weight.grad = total[start : start + weight.numel()].view_as(weight)
            start += weight.numel()
