"""Masked language modelling on any packed texts."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from endtask.models.batch import TextBatch, gather_texts
from endtask.models.network import Network
from endtask.objectives.base import Loss
from endtask.objectives.masking import Masking
from endtask.seeds import generator
from endtask.text.packed import PackedTexts
from endtask.text.sampling import BatchPlan


class MaskedLM:
    """Predict hidden tokens from their surroundings."""

    def __init__(
        self,
        name: str,
        texts: PackedTexts,
        masking: Masking,
        *,
        batch_size: int,
        pad_id: int,
        seed: int,
    ) -> None:
        self.name = name
        self._texts, self._masking = texts, masking
        self._pad_id, self._seed = pad_id, seed
        self.plan = BatchPlan(texts.lengths, batch_size, seed, name)

    def batch(self, step: int) -> TextBatch:
        """The masked texts of a step."""
        batch = gather_texts(self._texts, self.plan.positions(step), self._pad_id)
        return self._masking.apply(batch, generator(self._seed, "mask", self.name, step))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy over the masked positions."""
        value = masked_lm_loss(network, network(batch), batch)
        return Loss(value, {"mlm": value})


def masked_lm_loss(network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
    """Mean cross-entropy at the masked positions of hidden states (B, T, hidden)."""
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    if len(batch.masked_positions) == 0:  # texts of special tokens only
        return hidden.sum() * 0.0
    return functional.cross_entropy(network.masked_logits(hidden, batch.masked_positions), batch.masked_targets)
