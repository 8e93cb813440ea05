"""Gradients of single objectives on shared modules, as flat vectors, for rules that see gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from endtask.objectives.base import BuiltObjective


class FlatGradient:
    """A buffer for the gradients of some weights: `flat` (P,), and `views` into it in the shape of each weight."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        sizes = [weight.numel() for weight in weights]
        self.flat = weights[0].new_zeros(sum(sizes))
        parts = torch.split(self.flat, sizes)
        self.views = [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]

    @torch.no_grad()
    def take(self, gradients: Sequence[Tensor | None], *, add: bool = False) -> None:
        """Copy gradients into the buffer, zeros where there is none; or add them to it."""
        present = [(view, new) for view, new in zip(self.views, gradients, strict=True) if new is not None]
        absent = [view for view, new in zip(self.views, gradients, strict=True) if new is None]
        views, values = [view for view, _ in present], [value for _, value in present]
        if add:
            torch._foreach_add_(views, values)
            return
        torch._foreach_copy_(views, values)
        if absent:
            torch._foreach_zero_(absent)


class ModuleGradients:
    """The gradients of a step's objectives on a module, in buffers that every step reuses."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = [weight for weight in module.parameters() if weight.requires_grad]
        self._buffers: dict[str, FlatGradient] = {}
        self._free: list[FlatGradient] = []
        self._total: FlatGradient | None = None

    @property
    def by_objective(self) -> dict[str, Tensor]:
        """The gradients collected in this step: (P,) each."""
        return {name: buffer.flat for name, buffer in self._buffers.items()}

    def start(self) -> None:
        """Drop the gradients of the last step."""
        self._free += self._buffers.values()
        self._buffers.clear()

    def collect(self, name: str) -> None:
        """Move the gradient from the module's weights to a buffer; adds up several gradients of the same name."""
        is_known = name in self._buffers
        if not is_known:
            self._buffers[name] = self._free.pop() if self._free else FlatGradient(self._weights)
        self._buffers[name].take([weight.grad for weight in self._weights], add=is_known)
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def spread(self, weights: Mapping[str, Tensor]) -> None:
        """Write the weighted sum into the gradients of the module's weights, in memory that the next step reuses."""
        if self._total is None:
            self._total = FlatGradient(self._weights)
        total = self._total.flat.zero_()
        for name, buffer in self._buffers.items():
            total.addcmul_(buffer.flat, weights[name])
        for weight, view in zip(self._weights, self._total.views, strict=True):
            weight.grad = view


class SharedHeads:
    """Mixes the gradients of objectives that share a head, in proportion to their weights.

    The weights do not change how fast a head learns (TARTAN, Algorithm 1), only how much it learns from each of its
    objectives: a head that learned all of them equally would not fit what the encoder mostly learns.
    """

    def __init__(self, heads: Any, objectives: Mapping[str, BuiltObjective]) -> None:
        learners: dict[str, list[str]] = {}
        for name, objective in objectives.items():
            for head in objective.heads:
                learners.setdefault(head, []).append(name)
        self._learners = {head: names for head, names in learners.items() if len(names) > 1}
        self._gradients = {head: ModuleGradients(heads[head]) for head in self._learners}

    def start(self) -> None:
        """Drop the gradients of the last step."""
        for gradients in self._gradients.values():
            gradients.start()

    def collect(self, objective: str) -> None:
        """Move the gradients of an objective from its shared heads to buffers."""
        for head, names in self._learners.items():
            if objective in names:
                self._gradients[head].collect(objective)

    def spread(self, weights: Mapping[str, Tensor]) -> None:
        """Write the mixed gradients into the heads; a head that no objective used in this step gets none."""
        for head, names in self._learners.items():
            if self._gradients[head].by_objective:
                total = torch.stack([weights[name] for name in names]).sum()
                self._gradients[head].spread({name: weights[name] / total for name in names})
