"""Masked language modelling on any packed texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endtask.objectives.base import BuiltObjective, Loss, Objective, objectives

if TYPE_CHECKING:
    from endtask.config import ObjectiveSettings
    from endtask.encoders.batch import TextBatch
    from endtask.encoders.network import Network
    from endtask.objectives.context import BuildContext
    from endtask.objectives.stream import TextStream

_HEAD = "masked_lm"


@objectives.register("mlm")
class MaskedLMObjective(Objective):
    """masked LM"""

    masks = True
    reselectable = True

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return masked LM over the section's texts."""
        return MaskedLM(name, run.stream(name, section))


class MaskedLM:
    """Predicts masked tokens from their context, through the head that all masked LM objectives share."""

    heads: tuple[str, ...] = (_HEAD,)
    passes = 1
    replayable = True

    def __init__(self, name: str, stream: TextStream) -> None:
        self.name, self.stream = name, stream

    def batch(self, step: int) -> TextBatch:
        """Return the masked texts of a step."""
        return self.stream.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return the mean cross-entropy over the masked positions of all batches."""
        value = network.masked_lm_loss(network(batch), batch)
        return Loss(batch.token_share * value, {"mlm": value})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of the encoder, and of the head at the masked positions."""
        return network.training_flops(batch, masked=batch.masked)
