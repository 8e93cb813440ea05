"""Muon: momentum whose steps are orthogonalised, for the matrices inside an encoder (Jordan et al., 2024).

Each update is scaled by sqrt(max(1, rows / columns)), the convention of Muon's authors and `adjust_lr_fn="original"` of
torch.optim.Muon: the update of a square or tall matrix then moves the layer's output by about the same root mean square
whatever the width, so that one rate serves all sizes. The other option there, "match_rms_adamw", multiplies by
0.2 sqrt(max(rows, columns)) so that AdamW's rate can be used again; Muon has a rate of its own in the settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5
# The authors' quintic a x + b x^3 + c x^5: steepest at zero, leaving singular values between about 0.7 and 1.2.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_TINY = 1e-7

# Projections stored as one matrix: query, key and value; value and gate. Joined, they would share singular vectors.
_FUSED = {"Wqkv.weight": 3, "mlp.Wi.weight": 2}


class _Part(NamedTuple):
    """One matrix to orthogonalise, with its gradient and momentum: views of a parameter's rows."""

    weight: Tensor
    gradient: Tensor
    momentum: Tensor


class Muon:
    """Nesterov momentum, orthogonalised part by part, with decoupled weight decay; all on the device.

    >>> weight = nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.eye(2)
    >>> Muon({"weight": weight}, weight_decay=0.0).step(0.1, divisor=None, skipped=torch.tensor(False))
    >>> weight.diag().tolist() == (-0.1 * orthogonalize(torch.eye(2)[None])[0].diag()).tolist()
    True
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        weight_decay: float,
        rate_factors: Mapping[str, float] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._parameters = dict(parameters)
        self._factors = {name: 1.0 if rate_factors is None else rate_factors[name] for name in parameters}
        self._weight_decay = weight_decay
        self._dtype = dtype
        self.momentum_buffers = {name: torch.zeros_like(weight) for name, weight in self._parameters.items()}

    @torch.no_grad()
    def step(self, rate: float, *, divisor: Tensor | None, skipped: Tensor) -> None:
        """Update weights and momentum from gradients divided by `divisor`, or nothing where `skipped` is true."""
        for (_, factor), parts in self._parts_alike().items():
            self._update(parts, rate * factor, divisor, skipped)

    def _parts_alike(self) -> dict[tuple[torch.Size, float], list[_Part]]:
        """The parts that have a gradient; those of one shape and rate go through one batched product."""
        stacks: dict[tuple[torch.Size, float], list[_Part]] = defaultdict(list)
        for name, weight in self._parameters.items():
            if weight.grad is None:
                continue
            tensors = (weight, weight.grad, self.momentum_buffers[name])
            for part in zip(*(split_fused(name, tensor) for tensor in tensors), strict=True):
                stacks[part[0].shape, self._factors[name]].append(_Part(*part))
        return stacks

    def _update(self, parts: list[_Part], rate: float, divisor: Tensor | None, skipped: Tensor) -> None:
        weights, gradients, momenta = (list(column) for column in zip(*parts, strict=True))
        weight, gradient, momentum = torch.stack(weights), torch.stack(gradients), torch.stack(momenta)
        if divisor is not None:
            gradient = gradient / divisor
        new_momentum = momentum.lerp(gradient, 1 - MOMENTUM)
        update = orthogonalize(gradient.lerp(new_momentum, MOMENTUM), self._dtype)
        new_weight = (weight * (1 - rate * self._weight_decay)).add_(update, alpha=-rate * update_scale(weight.shape))
        # No public call writes many tensors in one kernel.
        torch._foreach_copy_(momenta, torch.where(skipped, momentum, new_momentum).unbind())
        torch._foreach_copy_(weights, torch.where(skipped, weight, new_weight).unbind())


def orthogonalize(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The nearest matrices with orthonormal rows or columns, roughly, by Newton-Schulz: (N, rows, columns) -> the same.

    >>> turned = orthogonalize(torch.tensor([[[0.0, 3.0], [1.0, 0.0]]]))[0]
    >>> bool((turned.diag() == 0).all() and (turned.flip(0).diag() - 1).abs().max() < 0.35)
    True
    """
    first, third, fifth = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    wide = (matrices.mT if tall else matrices).to(dtype)  # the smaller Gram matrix is the one of the short side
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = wide @ wide.mT  # (N, short, short)
        polynomial = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        wide = torch.baddbmm(wide, polynomial, wide, beta=first)
    return (wide.mT if tall else wide).to(matrices.dtype)


def split_fused(name: str, matrix: Tensor) -> tuple[Tensor, ...]:
    """The projections that a parameter of this name holds, as views of its rows.

    >>> [part.shape for part in split_fused("layers.0.attn.Wqkv.weight", torch.zeros(6, 2))]
    [torch.Size([2, 2]), torch.Size([2, 2]), torch.Size([2, 2])]
    """
    count = next((count for ending, count in _FUSED.items() if name.endswith(ending)), 1)
    return matrix.chunk(count)


def update_scale(shape: torch.Size) -> float:
    """How much longer the updates of tall matrices are: (..., rows, columns).

    >>> update_scale(torch.Size([8, 2])), update_scale(torch.Size([2, 8]))
    (2.0, 1.0)
    """
    rows, columns = shape[-2:]
    return float(max(1.0, rows / columns) ** 0.5)
