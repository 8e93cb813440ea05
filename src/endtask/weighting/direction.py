"""The part of the held-out gradient that tells which texts of a batch help the task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Direction:
    """The held-out gradient of one weight, as the last look found it; zeros before the first.

    Whoever learns the weights of objectives writes it, objectives that weigh their texts read it.
    """

    part: slice
    """Where the weight stands in the body's flat gradient."""
    value: Tensor  # (height, width)

    def of(self, held_out: Tensor) -> Tensor:
        """The same part of another gradient: (P,) -> (height, width)."""
        return held_out[self.part].view_as(self.value).clone()
