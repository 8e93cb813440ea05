"""A class for each text (task types `text` and `pair`): cross-entropy, with what fine-tuning may add to it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import TextBatch
from endtask.encoders.network import TASK, Network
from endtask.encoders.per_example_loss import class_errors
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective, weighted_sum, with_answers


class Classification(TaskObjective):
    """Predict the label of a task text.

    `text_weights` let the windows of one long text count as one. They are divided by the expected sum of a batch's, for
    a batch that holds windows of long texts only must not count like any other.
    """

    def __init__(
        self,
        name: str,
        stream: TextStream,
        labels: NDArray[np.int64],
        *,
        head: str = TASK,
        text_weights: NDArray[np.float32] | None = None,
        rdrop: float = 0.0,
    ) -> None:
        super().__init__(name, stream, head=head, rdrop=rdrop)
        self._labels = labels
        self._weights = np.ones(len(labels)) if text_weights is None else text_weights / text_weights.mean()

    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """The classes of the texts; those of padding are `IGNORED`."""
        return with_answers(batch, self._labels[positions], self._weights[positions] / len(positions))

    def answer_loss(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """Cross-entropy of the class logits (S, classes)."""
        return cross_entropy(logits, batch)

    def differences(self, logits: Tensor, other: Tensor) -> Tensor:
        """Of two answers (S, classes)."""
        return class_differences(logits, other)


def task_loss(network: Network, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
    """Cross-entropy of the class logits of (N, hidden)."""
    return cross_entropy(network.task_logits(hidden, batch, head), batch)


def cross_entropy(logits: Tensor, batch: TextBatch) -> Tensor:
    """Cross-entropy of class logits (S, classes), times the texts' weights, which hold the division by a sum."""
    return weighted_sum(class_errors(logits, batch), batch)


def class_differences(logits: Tensor, other: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of each row of two answers: (S, classes) -> (S,).

    >>> round(class_differences(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]])).item(), 4)
    0.2311
    """
    log_p, log_q = logits.log_softmax(-1, torch.float32), other.log_softmax(-1, torch.float32)
    # The sum of p (log p - log q) and q (log q - log p) in one product.
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
