"""An objective with a dropout of its own in the shared network."""

from __future__ import annotations

from typing import Any

from endtask.encoders.network import Network
from endtask.objectives.base import Batch, BuiltObjective, Loss


class OwnDropout:
    """The same objective, read with another dropout.

    The network's dropout is set before each reading, so every objective of a phase must have its own, or none. A
    compiled network keeps a graph for each rate that it has met: nothing is compiled again when rates take turns.
    """

    def __init__(self, objective: BuiltObjective, dropout: float) -> None:
        self.name, self.heads, self.passes = objective.name, objective.heads, objective.passes
        self.replayable = getattr(objective, "replayable", False)
        self.objective, self._dropout = objective, dropout

    @property
    def stream(self) -> Any:
        """The batches of the objective itself."""
        return self.objective.stream  # type: ignore[attr-defined]

    def batch(self, step: int) -> Batch:
        """The batch of a step."""
        return self.objective.batch(step)

    def loss(self, network: Network, batch: Any) -> Loss:
        """The loss of a batch at this dropout."""
        network.set_dropout(self._dropout)
        return self.objective.loss(network, batch)

    def flops(self, network: Network, batch: Any) -> float:
        """What training on a batch costs."""
        return self.objective.flops(network, batch)
