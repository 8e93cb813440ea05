"""FLOPs of training: by the papers' rule, and by counting matrix products."""

from __future__ import annotations

from dataclasses import dataclass


def training_flops(parameters: int, tokens: float) -> float:
    """Return 6 x parameters x tokens, the papers' rule (Kaplan et al.; TLM, section 4).

    >>> training_flops(1000, 10)
    60000.0
    """
    return 6.0 * parameters * tokens


@dataclass(frozen=True)
class ModelCost:
    """The sizes that determine the FLOPs of a text in an encoder with a masked-LM head and a task head.

    Both heads are a dense layer and an output layer, as in BERT, RoBERTa, ModernBERT and TLM.

    >>> tiny = ModelCost(hidden=4, layers=1, intermediate=8, gated=False, vocabulary=10, classes=2)
    >>> tiny.forward_flops(tokens=3, squared_lengths=9)
    912.0
    >>> tiny.forward_flops(tokens=3, squared_lengths=9, masked=1) - tiny.forward_flops(tokens=3, squared_lengths=9)
    112.0
    """

    hidden: int
    layers: int
    intermediate: int
    gated: bool
    """Whether the feed-forward layers have a second input matrix, as in ModernBERT."""
    vocabulary: int
    classes: int

    def forward_flops(self, *, tokens: int, squared_lengths: int, masked: int = 0, texts: int = 0) -> float:
        """Return the multiplications and additions of all matrix products in a forward pass.

        `squared_lengths` is the sum of length x length over the texts, since attention stays within a text; `masked`
        is the number of positions that the masked-LM head reads and `texts` of those that the task head reads.
        """
        linear = self._multiplications_per_token() * tokens
        attention = self.layers * 2 * self.hidden * squared_lengths  # queries x keys, then weights x values
        masked_lm = self.hidden * (self.hidden + self.vocabulary) * masked
        task = self.hidden * (self.hidden + self.classes) * texts
        return 2.0 * (linear + attention + masked_lm + task)

    def step_flops(self, *, tokens: int, squared_lengths: int, masked: int = 0, texts: int = 0) -> float:
        """Return the FLOPs of a training step: the backward pass has two products for each product forward."""
        return 3.0 * self.forward_flops(tokens=tokens, squared_lengths=squared_lengths, masked=masked, texts=texts)

    def _multiplications_per_token(self) -> int:
        projections = 4 * self.hidden**2  # query, key, value, output
        feed_forward = (3 if self.gated else 2) * self.hidden * self.intermediate
        return self.layers * (projections + feed_forward)
