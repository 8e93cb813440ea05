"""The losses of a task: the targets of a batch and the loss of the head's logits, for each form of answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import MASKED_LM, TASK, Network
from endtask.objectives.built import Loss
from endtask.objectives.stream import TextStream
from endtask.task import Task
from endtask.tokenization.packed_texts import WordStarts


class TaskObjective(ABC):
    """Base class of objectives that learn a task; subclasses add targets to a batch and compute the losses."""

    passes = 1
    replayable = True

    def __init__(self, name: str, stream: TextStream, *, head: str = TASK) -> None:
        self.name, self.stream, self.head = name, stream, head
        self.heads: tuple[str, ...] = (head,)

    @abstractmethod
    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """Return the batch of the texts at `positions` with `labels` and `weights`."""

    @staticmethod
    @abstractmethod
    def losses(logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the loss of each text or token, 0 for padding: (S or N, outputs) -> (S or N,)."""

    @staticmethod
    @abstractmethod
    def differences(logits: Tensor, other: Tensor) -> Tensor:
        """Return KL(p || q) + KL(q || p) of two answers to each text or token: (S or N, outputs) -> (S or N,)."""

    def answer_loss(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the weighted sum of the losses: ()."""
        return weighted_sum(self.losses(logits, batch), batch)

    def batch(self, step: int) -> TextBatch:
        """Return the labelled texts of a step."""
        return self.answered(self.stream.batch(step), self.stream.positions(step))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return the loss of a batch."""
        value = self.answer_loss(self.logits(network, batch), batch)
        return Loss(self.share(batch) * value, {"task": value})

    def divergence(self, logits: Tensor, other: Tensor, batch: TextBatch) -> Tensor:
        """Return the weighted sum of the divergences of two answers: ()."""
        return weighted_sum(self.differences(logits, other), batch)

    def share(self, batch: TextBatch) -> float:
        """Return the factor of a batch's mean loss with which all texts count the same."""
        return batch.text_share

    def logits(self, network: Network, batch: TextBatch) -> Tensor:
        """Return the head's answers."""
        return network.task_logits(network(batch), batch, self.head)

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of the encoder, and of the head once per text or token."""
        return network.training_flops(batch, texts=network.rows_read(batch, self.head), head=self.head)


class _TextAnswers(TaskObjective):
    """One answer for each packed text.

    `text_weights` let the windows of one long text count as one text. They are divided by the expected sum of a batch's
    weights, since a batch that holds only windows of long texts must not count like any other.
    """

    dtype: ClassVar[type] = np.int64
    padding_label: ClassVar[float] = IGNORED

    def __init__(
        self,
        name: str,
        stream: TextStream,
        answers: NDArray[Any],
        *,
        head: str = TASK,
        text_weights: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(name, stream, head=head)
        self._answers: NDArray[Any] = answers.astype(self.dtype)
        self._weights = np.ones(len(answers)) if text_weights is None else text_weights / text_weights.mean()

    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """Return the batch with the answers of its texts; those of padding have no weight."""
        weights = self._weights[positions] / len(positions)
        return with_answers(batch, self._answers[positions], weights, padding_label=self.padding_label)


class Classification(_TextAnswers):
    """One class for each text: cross-entropy."""

    @staticmethod
    def losses(logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the cross-entropy of each text's class: (S, classes) -> (S,)."""
        assert batch.labels is not None
        return functional.cross_entropy(logits, batch.labels, ignore_index=IGNORED, reduction="none")

    @staticmethod
    def differences(logits: Tensor, other: Tensor) -> Tensor:
        """Return the divergence of two answers to each text.

        >>> round(Classification.differences(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]])).item(), 4)
        0.2311
        """
        log_p, log_q = logits.log_softmax(-1, torch.float32), other.log_softmax(-1, torch.float32)
        # The sum of p (log p - log q) and q (log q - log p) in one product.
        return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)


class MultiLabel(_TextAnswers):
    """Any number of labels for each text: binary cross-entropy of 0 or 1, (texts, labels)."""

    dtype = np.float32

    @staticmethod
    def losses(logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the mean binary cross-entropy of each text's labels: (S, labels) -> (S,)."""
        assert batch.labels is not None
        # Padding has negative targets: without the clamp its loss could be infinite, and infinity times 0 is not 0.
        wide, targets = _wide(logits), batch.labels.clamp(min=0.0)
        return functional.binary_cross_entropy_with_logits(wide, targets.to(wide.dtype), reduction="none").mean(-1)

    @staticmethod
    def differences(logits: Tensor, other: Tensor) -> Tensor:
        """Return the mean divergence over the labels, each of which is a binary answer.

        >>> round(MultiLabel.differences(torch.tensor([[0.0]]), torch.tensor([[1.0]])).item(), 4)
        0.2311
        """
        first, second = logits.float(), other.float()
        # p (log p - log q) + (1 - p) (log (1 - p) - log (1 - q)), both ways: the logits are log p - log (1 - p).
        return ((first.sigmoid() - second.sigmoid()) * (first - second)).mean(-1)


class Regression(_TextAnswers):
    """A number for each text: squared error.

    Scores are standardised by the mean and deviation of train: the loss is then about 1 at the start whatever the
    scores measure, so that learning rates and TLM's rho2 mean the same as for classes.
    """

    dtype = np.float32
    padding_label = 0.0

    @staticmethod
    def losses(logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the squared error of each text: (S, 1) -> (S,)."""
        assert batch.labels is not None
        return (_wide(logits)[:, 0] - batch.labels) ** 2

    @staticmethod
    def differences(logits: Tensor, other: Tensor) -> Tensor:
        """Return the squared difference, which is the divergence of two normal answers of deviation 1."""
        return (logits[:, 0].float() - other[:, 0].float()) ** 2


class Tagging(TaskObjective):
    """A tag for each word: cross-entropy at the first token of every word that was not truncated.

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
    ) -> None:
        super().__init__(name, stream, head=head)
        self._words, self._tags = words, tags

    def answered(self, batch: TextBatch, positions: NDArray[np.int64]) -> TextBatch:
        """Return the batch with tags at tokens, every tagged word with the same weight; 0 where no word has a token."""
        starts = batch.offsets[: len(positions)].numpy().astype(np.int64)
        numbers, token_positions = self._words.gather(positions, starts)
        tags = np.full(len(batch.input_ids), IGNORED, dtype=np.int64)
        weights = np.zeros(len(batch.input_ids), dtype=np.float32)
        tags[token_positions] = self._tags[numbers]
        weights[token_positions] = 1.0 / max(1, len(token_positions))
        return replace(batch, labels=torch.from_numpy(tags), weights=torch.from_numpy(weights))

    @staticmethod
    def losses(logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the cross-entropy of each token, 0 where it has no tag: (N, tags) -> (N,)."""
        return Classification.losses(_wide(logits), batch)

    @staticmethod
    def differences(logits: Tensor, other: Tensor) -> Tensor:
        """Return the divergence at each token."""
        return Classification.differences(logits, other)

    def share(self, batch: TextBatch) -> float:
        """Return the factor with which all words count the same; they are about as many as tokens."""
        return batch.token_share


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
        """Return the labelled texts of a step, masked if the stream masks."""
        return self._task.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return both losses from one pass through the encoder."""
        hidden = network(batch)
        task = self._task.answer_loss(network.task_logits(hidden, batch, self._task.head), batch)
        if self._rho2 == 0:
            return Loss(self._scale * self._task.share(batch) * task, {"task": task})
        mlm = network.masked_lm_loss(hidden, batch)
        total = self._rho2 * batch.token_share * mlm + self._task.share(batch) * task
        return Loss(self._scale * total, {"mlm": mlm, "task": task})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of the encoder and both heads."""
        masked, head = batch.masked if self._rho2 else 0, self._task.head
        return network.training_flops(batch, texts=network.rows_read(batch, head), masked=masked, head=head)


def task_objective(
    task: Task, name: str, stream: TextStream, *, head: str = TASK, split: str = "train"
) -> TaskObjective:
    """Return the objective that learns a split, whose packed texts or windows the stream reads."""
    objective: TaskObjective = task.task_type.objective(task, name, stream, head=head, split=split)
    return objective


def cross_entropy(logits: Tensor, batch: TextBatch) -> Tensor:
    """Return the weighted sum of the cross-entropies of class logits (S or N, classes)."""
    return weighted_sum(Classification.losses(logits, batch), batch)


def weighted_sum(each: Tensor, batch: TextBatch) -> Tensor:
    """Return the sum of losses times their weights, which contain the division by a sum: (S,) or (N,) -> ()."""
    assert batch.weights is not None
    return (each * batch.weights).sum()


def with_answers(
    batch: TextBatch, answers: NDArray[Any], weights: NDArray[Any] | float, *, padding_label: float = IGNORED
) -> TextBatch:
    """Return the batch with an answer (texts, ...) and a weight for each text; texts of padding have no weight."""
    size, texts = len(batch.offsets) - 1, len(answers)
    labels = np.full((size, *answers.shape[1:]), padding_label, dtype=answers.dtype)
    all_weights = np.zeros(size, dtype=np.float32)
    labels[:texts], all_weights[:texts] = answers, weights
    return replace(batch, labels=torch.from_numpy(labels), weights=torch.from_numpy(all_weights))


def _wide(logits: Tensor) -> Tensor:
    """Return logits in float32, or float64 where the network is."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
