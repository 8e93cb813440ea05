"""A number for each text (task type `regression`): squared error of standardised scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import TextBatch
from endtask.encoders.network import TASK
from endtask.encoders.per_example_loss import score_errors
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective, weighted_sum, with_answers


class Regression(TaskObjective):
    """Predict the score of a task text.

    `scores` are one per packed text, standardised by the mean and deviation of train: the loss is then about 1 at the
    start whatever the scores measure, so that rates and TLM's rho2 mean the same as for classes. `text_weights` let
    the windows of one long text count as one.
    """

    def __init__(
        self,
        name: str,
        stream: TextStream,
        scores: NDArray[np.float64],
        *,
        head: str = TASK,
        text_weights: NDArray[np.float32] | None = None,
        rdrop: float = 0.0,
    ) -> None:
        super().__init__(name, stream, head=head, rdrop=rdrop)
        self._scores = scores.astype(np.float32)
        self._weights = np.ones(len(scores)) if text_weights is None else text_weights / text_weights.mean()

    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """The scores of the texts; those of padding have no weight."""
        return with_answers(
            batch, self._scores[positions], self._weights[positions] / len(positions), padding_label=0.0
        )

    def answer_loss(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """Mean squared error of (S, 1)."""
        return weighted_sum(score_errors(logits, batch), batch)

    def differences(self, logits: Tensor, other: Tensor) -> Tensor:
        """The squared difference: what the divergence is between two normal answers of the deviation 1."""
        return (logits[:, 0].float() - other[:, 0].float()) ** 2
