"""The base of the objectives of all task types: targets of a batch, and a loss of the head's logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import MASKED_LM, TASK, Network
from endtask.objectives.base import Loss
from endtask.objectives.stream import TextStream
from endtask.tokenization.packed_texts import PackedTexts


class TaskObjective(ABC):
    """Learn a task; subclasses attach the targets to a batch and compute the loss of the logits.

    With `rdrop` each batch is read twice under different dropout: the loss is the mean of both readings' losses, and
    `rdrop` times half the sum of the divergences between their answers both ways (R-Drop: Liang et al., 2021, Eq. 3).
    """

    replayable = True

    def __init__(self, name: str, stream: TextStream, *, head: str = TASK, rdrop: float = 0.0) -> None:
        self.name, self.stream, self.head = name, stream, head
        self.heads: tuple[str, ...] = (head,)
        self.passes, self._rdrop = 2 if rdrop else 1, rdrop

    @abstractmethod
    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """The batch of the texts at `positions` with `labels` and `weights`."""

    @abstractmethod
    def answer_loss(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """What the head's logits cost, a single number."""

    @abstractmethod
    def differences(self, logits: Tensor, other: Tensor) -> Tensor:
        """KL(p || q) + KL(q || p) of two answers to each text, or token: (S or N, outputs) twice -> (S or N,)."""

    def batch(self, step: int) -> TextBatch:
        """The labelled texts of a step."""
        return self.answered(self.stream.batch(step), self.stream.positions(step))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """The loss of one reading, or of two."""
        if not self._rdrop:
            value = self.answer_loss(self._read(network, batch), batch)
            return Loss(self.share(batch) * value, {"task": value})
        # Both at once: small batches leave a GPU waiting for its orders, of which this takes half.
        logits, again = self._read(network, batch.twice()).chunk(2)
        task = 0.5 * (self.answer_loss(logits, batch) + self.answer_loss(again, batch))
        divergence = 0.5 * weighted_sum(self.differences(logits, again), batch)
        total = self.share(batch) * (task + self._rdrop * divergence)
        return Loss(total, {"task": task, "rdrop": divergence})

    def share(self, batch: TextBatch) -> float:
        """What the mean loss of a batch counts, so that all texts count alike."""
        return batch.text_share

    def _read(self, network: Network, batch: TextBatch) -> Tensor:
        return network.task_logits(network(batch), batch, self.head)

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and the head once per text, or per token, at each reading."""
        rows = rows_read(network, batch, self.head)
        return self.passes * network.training_flops(batch, texts=rows, head=self.head)


class JointTask:
    """TLM's task batch: rho2 * L_mlm + L_task, the same masked input feeding both heads (TLM, Eq. 2).

    The sum is divided by rho2 + 1, as the authors' code does, which keeps its size near that of the corpus batches'
    loss. With rho2 = 0 the masked-LM head is not computed.
    """

    passes = 1
    replayable = True

    def __init__(self, task: TaskObjective, *, rho2: float) -> None:
        self.name, self.stream = task.name, task.stream
        self.heads: tuple[str, ...] = (task.head, MASKED_LM) if rho2 else (task.head,)
        self._task, self._rho2, self._scale = task, rho2, 1.0 / (rho2 + 1.0)

    def batch(self, step: int) -> TextBatch:
        """The labelled texts of a step, masked if the stream masks."""
        return self._task.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Both losses from one pass through the encoder."""
        hidden = network(batch)
        task = self._task.answer_loss(network.task_logits(hidden, batch, self._task.head), batch)
        if self._rho2 == 0:
            return Loss(self._scale * self._task.share(batch) * task, {"task": task})
        mlm = network.masked_lm_loss(hidden, batch)
        total = self._rho2 * batch.token_share * mlm + self._task.share(batch) * task
        return Loss(self._scale * total, {"mlm": mlm, "task": task})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and both heads."""
        masked, head = batch.masked if self._rho2 else 0, self._task.head
        return network.training_flops(batch, texts=rows_read(network, batch, head), masked=masked, head=head)


def with_answers(
    batch: TextBatch, answers: NDArray[Any], weights: NDArray[Any] | float, *, padding_label: float = IGNORED
) -> TextBatch:
    """The batch with an answer (texts, ...) and a weight for each text; padding has `padding_label` and no weight."""
    size, texts = len(batch.offsets) - 1, len(answers)
    labels = np.full((size, *answers.shape[1:]), padding_label, dtype=answers.dtype)
    all_weights = np.zeros(size, dtype=np.float32)
    labels[:texts], all_weights[:texts] = answers, weights
    return replace(batch, labels=torch.from_numpy(labels), weights=torch.from_numpy(all_weights))


def weighted_sum(each: Tensor, batch: TextBatch) -> Tensor:
    """The losses of texts, or of tokens, times their weights, which hold the division by a sum: (S,) or (N,) -> ()."""
    assert batch.weights is not None
    return (each * batch.weights).sum()


def rows_read(network: Network, batch: TextBatch, head: str) -> int:
    """How many vectors a task's head reads."""
    rows: int = network.type_of(head).rows_read(batch)
    return rows


def window_weights(texts: PackedTexts) -> NDArray[np.float32]:
    """Return weights of packed texts with which the windows of one long text count as one."""
    return (1.0 / texts.windows[texts.examples]).astype(np.float32)
