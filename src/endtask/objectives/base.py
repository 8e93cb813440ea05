"""What an objective is: a head, a stream of batches and a loss on the shared encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """The value to minimise, and its parts for the curves."""

    total: Tensor
    parts: dict[str, Tensor]


class Batch(Protocol):
    """What the loop knows of a batch, of texts or of anything else; what is no text counts examples as tokens."""

    @property
    def real_tokens(self) -> int:
        """Tokens without padding."""
        ...

    @property
    def padded_tokens(self) -> int:
        """Tokens that are computed."""
        ...

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        ...

    def pin(self) -> Self:
        """The same batch in memory that a GPU can copy from while others work."""
        ...


class Objective(Protocol):
    """One thing to learn; a batch holds one objective.

    `batch(step)` is a pure function of the objective's own seed and the step, so that a resumed run, several
    processes and tests all see the same data without replay.

    One whose loss depends on the batch's tensors and the weights alone, on no number that Python knows and that
    changes, may say `replayable = True`: a GPU then repeats its kernels without being told each (training/graph_replay.py).
    """

    name: str
    heads: tuple[str, ...]
    """The heads of the network that it trains."""
    passes: int
    """How often the network reads each batch; tokens are counted as often."""

    def batch(self, step: int) -> Batch:
        """The batch of a step, on the CPU."""
        ...

    def loss(self, network: Any, batch: Any) -> Loss:
        """The loss of a batch, through this objective's head of the network, on the network's device."""
        ...

    def flops(self, network: Any, batch: Any) -> float:
        """What training on a batch costs in matrix products, padding left out."""
        ...
