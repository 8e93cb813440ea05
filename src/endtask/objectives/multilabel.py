"""Any number of labels for each text (task type `multilabel`): a yes or no for every label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import TextBatch
from endtask.encoders.network import TASK
from endtask.encoders.per_example_loss import label_errors
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective, weighted_sum, with_answers


class MultiLabel(TaskObjective):
    """Predict all labels of a task text.

    `labels` are 0 or 1, (packed texts, labels). `text_weights` let the windows of one long text count as one.
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
        self._labels = labels.astype(np.float32)
        self._weights = np.ones(len(labels)) if text_weights is None else text_weights / text_weights.mean()

    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """The labels of the texts; those of padding have no weight."""
        return with_answers(batch, self._labels[positions], self._weights[positions] / len(positions))

    def answer_loss(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """Mean binary cross-entropy over texts and labels of (S, labels)."""
        return weighted_sum(label_errors(logits, batch), batch)

    def differences(self, logits: Tensor, other: Tensor) -> Tensor:
        """The mean over the labels, each a yes or no of its own, of (S, labels)."""
        return label_differences(logits, other)


def label_differences(logits: Tensor, other: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of each label's yes or no, the mean over the labels: (S, labels) -> (S,).

    >>> import torch
    >>> round(label_differences(torch.tensor([[0.0]]), torch.tensor([[1.0]])).item(), 4)
    0.2311
    """
    first, second = logits.float(), other.float()
    # p (log p - log q) + (1 - p) (log (1 - p) - log (1 - q)), both ways: the logits are log p - log (1 - p).
    return ((first.sigmoid() - second.sigmoid()) * (first - second)).mean(-1)
