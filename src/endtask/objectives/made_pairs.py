"""What objectives over inputs made on the way have in common: one class per input, read off the pooled vector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.models.batch import IGNORED, TextBatch
from endtask.models.network import Network
from endtask.objectives.base import Loss
from endtask.objectives.made_stream import MadeInput, MadeStream
from endtask.objectives.task import cross_entropy

Made = tuple[list[MadeInput], NDArray[np.int64]]


class MadePairs:
    """Tell whether the parts of an input belong together: class 1 if so, class 0 if not."""

    passes = 1
    replayable = True

    def __init__(self, name: str, stream: MadeStream, *, head: str) -> None:
        self.name, self.stream = name, stream
        self.heads: tuple[str, ...] = (head,)
        self._head = head

    def make(self, step: int) -> Made:
        """The inputs of a step and their classes; a pure function of seed and step."""
        raise NotImplementedError

    def batch(self, step: int) -> TextBatch:
        """The labelled inputs of a step."""
        inputs, answers = self.make(step)
        batch = self.stream.lay_out(inputs)
        size = len(batch.offsets) - 1
        labels, weights = np.full(size, IGNORED, dtype=np.int64), np.zeros(size, dtype=np.float32)
        labels[: len(answers)] = answers
        weights[: len(answers)] = 1 / len(answers)
        return replace(batch, labels=torch.from_numpy(labels), weights=torch.from_numpy(weights))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy of both classes."""
        pooled = network.pooled(network(batch), batch)
        value = cross_entropy(network.heads[self._head](pooled), batch)
        return Loss(value, {"match": value})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and the head once per input."""
        return network.training_flops(batch, texts=batch.texts)
