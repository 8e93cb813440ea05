"""The same texts read several times, each time under another mask: their gradients are means."""

from __future__ import annotations

from dataclasses import dataclass

from endtask.gradients.engine import GradientEngine
from endtask.gradients.losses import TextLosses
from endtask.gradients.rows import Gradients, average
from endtask.models.batch import TextBatch


@dataclass(frozen=True)
class Readings:
    """One batch for each mask."""

    batches: tuple[TextBatch, ...]

    def pin(self) -> Readings:
        """The same in memory that a GPU can copy from while others work."""
        return Readings(tuple(batch.pin() for batch in self.batches))

    def gradients(self, engine: GradientEngine, losses: TextLosses) -> Gradients:
        """The mean over the masks."""
        return average([engine.gradients(batch, losses) for batch in self.batches])
