"""Averages of weights: over the last steps of a training, which often scores better than where it happens to end, and
over several trainings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from endtask.encoders.weights import load_weights


@torch.no_grad()
def put_in_mean(module: nn.Module, paths: Sequence[Path]) -> None:
    """Give a module the mean of saved weights (model soups: Wortsman et al., 2022)."""
    weights: list[Tensor] = [*module.parameters()]
    total = [torch.zeros_like(weight) for weight in weights]
    for path in paths:
        load_weights(path, module)
        torch._foreach_add_(total, weights)
    torch._foreach_copy_(weights, torch._foreach_div(total, float(len(paths))))


class Averaging:
    """The average of a module's trained weights after every step, each step counting `decay` times as much as the next.

    It is bias-corrected: after n steps the weights of step i count (1 - decay) decay^(n - i) / (1 - decay^n), which
    add up to one, so the weights that training began with have no part in it. The average lies where the weights lie,
    and nothing waits for the device. Steps that were skipped count like any other: their weights are those before.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = Averaging(layer, decay=0.5)
    >>> for step, value in enumerate((3.0, 6.0), start=1):
    ...     _ = layer.weight.data.fill_(value)
    ...     average.update(step)
    >>> with average.applied():
    ...     print(round(layer.weight.item(), 6))
    5.0
    >>> layer.weight.item()
    6.0
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        named = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        self._names, self._decay = list(named), decay
        self._weights = [weight.detach() for weight in named.values()]
        self._average = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after the step of this number, counted from 1."""
        share = (1.0 - self._decay) / (1.0 - self._decay**step)
        torch._foreach_lerp_(self._average, self._weights, share)

    @torch.no_grad()
    def put_in(self) -> None:
        """Put the average into the module, for good."""
        torch._foreach_copy_(self._weights, self._average)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the module for the length of the block; afterwards every bit is as before."""
        held = [weight.clone() for weight in self._weights]
        self.put_in()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self._weights, held)

    def state(self) -> dict[str, Tensor]:
        """The average by the names of the weights; the tensors in use, not copies."""
        return dict(zip(self._names, self._average, strict=True))

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave, from any device; ValueError, and nothing changed, if it does not fit."""
        own = self.state()
        if own.keys() != state.keys() or any(own[name].shape != value.shape for name, value in state.items()):
            raise ValueError(f"the average is of other weights: {sorted(own.keys() ^ state.keys())[:5]}")
        for name, value in own.items():
            value.copy_(state[name])
