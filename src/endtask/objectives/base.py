"""What an objective is: a stream of batches and a loss on the shared body through its own head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from endtask.models.batch import TextBatch
from endtask.models.network import Network


@dataclass(frozen=True)
class Loss:
    """The value to minimise, and its parts for the curves."""

    total: Tensor
    parts: dict[str, Tensor]


class Objective(Protocol):
    """One thing to learn.

    `batch(step)` is a pure function of the objective's own seed and the step, so that a resumed run, several
    processes and tests all see the same data without replay.
    """

    name: str

    def batch(self, step: int) -> TextBatch:
        """The batch of a step, on the CPU."""
        ...

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """The loss of a batch on the network's device."""
        ...
