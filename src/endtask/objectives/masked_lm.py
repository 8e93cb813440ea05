"""Masked language modelling on any packed texts."""

from __future__ import annotations

from endtask.models.batch import TextBatch
from endtask.models.network import MASKED_LM, Network
from endtask.objectives.base import Loss
from endtask.objectives.stream import TextStream


def own_masked_lm_head(name: str) -> str:
    """The head of an objective that does not share the common one.

    >>> own_masked_lm_head("dapt")
    'masked_lm_dapt'
    """
    return f"{MASKED_LM}_{name}"


class MaskedLM:
    """Predict hidden tokens from their surroundings, through the head that all masked LM shares or one of its own."""

    passes = 1
    replayable = True

    def __init__(self, name: str, stream: TextStream, head: str = MASKED_LM) -> None:
        self.name, self.stream = name, stream
        self.heads: tuple[str, ...] = (head,)

    def batch(self, step: int) -> TextBatch:
        """The masked texts of a step."""
        return self.stream.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy over the masked positions of all batches."""
        (head,) = self.heads
        value = network.masked_lm_loss(network(batch), batch, head=head)
        return Loss(batch.token_share * value, {"mlm": value})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and the head at the masked positions."""
        return network.training_flops(batch, masked=batch.masked)
