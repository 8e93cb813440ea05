"""A tag for each word (task type `token_classification`): cross-entropy at the first token of every word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import TASK
from endtask.encoders.per_example_loss import tag_errors
from endtask.objectives.classification import class_differences
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective, weighted_sum
from endtask.tokenization.packed_texts import WordStarts


class Tagging(TaskObjective):
    """Predict the tags of a task text's words; further tokens of a word, and words that were cut off, ask nothing.

    `tags` are the numbers of all words' tags, text after text.
    """

    def __init__(
        self,
        name: str,
        stream: TextStream,
        words: WordStarts,
        tags: NDArray[np.int64],
        *,
        head: str = TASK,
        rdrop: float = 0.0,
    ) -> None:
        super().__init__(name, stream, head=head, rdrop=rdrop)
        self._words, self._tags = words, tags

    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """Tags stand at tokens, every tagged word weighing the same; 0 for all where no word has a token."""
        starts = batch.offsets[: len(positions)].numpy().astype(np.int64)
        numbers, token_positions = self._words.gather(positions, starts)
        tags = np.full(len(batch.input_ids), IGNORED, dtype=np.int64)
        weights = np.zeros(len(batch.input_ids), dtype=np.float32)
        tags[token_positions] = self._tags[numbers]
        weights[token_positions] = 1.0 / max(1, len(token_positions))
        return replace(batch, labels=torch.from_numpy(tags), weights=torch.from_numpy(weights))

    def answer_loss(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """Mean cross-entropy of (N, tags) over the tagged words."""
        return weighted_sum(tag_errors(logits, batch), batch)

    def share(self, batch: TextBatch) -> float:
        """Words count alike, which are as many as tokens, more or less."""
        return batch.token_share

    def differences(self, logits: Tensor, other: Tensor) -> Tensor:
        """Of each token (N, tags); those where nothing is asked have no weight."""
        return class_differences(logits, other)
