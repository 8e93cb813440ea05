"""Masked language modelling on any packed texts."""

from __future__ import annotations

from endtask.encoders.batch import TextBatch
from endtask.encoders.network import MASKED_LM, Network
from endtask.objectives.base import Loss
from endtask.objectives.stream import TextStream


class MaskedLM:
    """Predict hidden tokens from their surroundings, through the head that all masked LM shares."""

    heads: tuple[str, ...] = (MASKED_LM,)
    passes = 1
    replayable = True

    def __init__(self, name: str, stream: TextStream) -> None:
        self.name, self.stream = name, stream

    def batch(self, step: int) -> TextBatch:
        """The masked texts of a step."""
        return self.stream.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy over the masked positions of all batches."""
        value = network.masked_lm_loss(network(batch), batch)
        return Loss(batch.token_share * value, {"mlm": value})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and the head at the masked positions."""
        return network.training_flops(batch, masked=batch.masked)
