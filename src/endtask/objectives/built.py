"""An objective as the training loop uses it: its batches, and their losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """The value to minimise, and its parts for the curves."""

    total: Tensor
    parts: dict[str, Tensor]


class Batch(Protocol):
    """A batch for the training loop, of texts or of other data; without texts, examples count as tokens."""

    @property
    def real_tokens(self) -> int:
        """Tokens without padding."""
        ...

    @property
    def padded_tokens(self) -> int:
        """Tokens that are computed."""
        ...

    def to(self, device: torch.device) -> Self:
        """Return the same batch on another device."""
        ...

    def pin(self) -> Self:
        """Return the same batch in pinned memory, which a GPU copies asynchronously."""
        ...


class BuiltObjective(Protocol):
    """An objective as the training loop uses it; a batch belongs to one objective.

    `batch(step)` is a pure function of the objective's own seed and the step, so that a resumed run, several
    processes and tests all see the same data without replay.

    An objective whose loss depends only on the batch's tensors and the weights, and on no Python number that changes,
    may set `replayable = True`: the loop then records its kernels in a CUDA graph (training/graph_replay.py).
    """

    name: str
    heads: tuple[str, ...]
    """The heads of the network that it trains."""
    passes: int
    """How often the network reads each batch; tokens are counted as often."""

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, on the CPU."""
        ...

    def loss(self, network: Any, batch: Any) -> Loss:
        """Return the loss of a batch, through this objective's head of the network, on the network's device."""
        ...

    def flops(self, network: Any, batch: Any) -> float:
        """Return the cost of training on a batch in matrix products, without padding."""
        ...
