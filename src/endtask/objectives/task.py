"""The end task itself, alone (stage 2) or together with masked LM on the same masked input (stage 1 of TLM)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from endtask.models.batch import IGNORED, TextBatch
from endtask.models.network import MASKED_LM, TASK, Network
from endtask.objectives.base import Loss
from endtask.objectives.stream import TextStream


class Classification:
    """Predict the label of a task text.

    `class_weights` let classes count differently, and a batch's loss is divided by their sum, as torch does.
    `text_weights` let the windows of one long text count as one: there the sum is the expected one, for a batch that
    holds windows of long texts only must not count like any other.

    `label_smoothing` spreads that share of each label over all classes, as torch does. With `rdrop` each batch is read
    twice under different dropout: the loss is the mean cross-entropy of both readings, and `rdrop` times half the sum
    of the divergences between their answers in both directions (R-Drop: Liang et al., 2021, Eq. 3).
    """

    def __init__(
        self,
        name: str,
        stream: TextStream,
        labels: NDArray[np.int64],
        *,
        head: str = TASK,
        class_weights: NDArray[np.float32] | None = None,
        text_weights: NDArray[np.float32] | None = None,
        label_smoothing: float = 0.0,
        rdrop: float = 0.0,
    ) -> None:
        self.name, self.stream = name, stream
        self.heads: tuple[str, ...] = (head,)
        self.passes = 2 if rdrop else 1
        self._label_smoothing, self._rdrop = label_smoothing, rdrop
        self._labels, self._head = labels, head
        self._class_weights = np.ones(len(labels)) if class_weights is None else class_weights[labels].astype(float)
        relative = np.ones(len(labels)) if text_weights is None else text_weights / text_weights.mean()
        self._weights = self._class_weights * relative

    def batch(self, step: int) -> TextBatch:
        """The labelled texts of a step."""
        positions = self.stream.positions(step)
        batch = self.stream.batch(step)
        size = len(batch.offsets) - 1
        labels = np.full(size, IGNORED, dtype=np.int64)
        weights = np.zeros(size, dtype=np.float32)
        labels[: len(positions)] = self._labels[positions]
        weights[: len(positions)] = self._weights[positions] / self._class_weights[positions].sum()
        return replace(batch, labels=torch.from_numpy(labels), weights=torch.from_numpy(weights))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy of the class logits."""
        value, logits = self._read(network, batch)
        if not self._rdrop:
            return Loss(value, {"task": value})
        second_value, second_logits = self._read(network, batch)
        task = 0.5 * (value + second_value)
        divergence = 0.5 * symmetric_divergence(logits, second_logits, batch)
        return Loss(task + self._rdrop * divergence, {"task": task, "rdrop": divergence})

    def _read(self, network: Network, batch: TextBatch) -> tuple[Tensor, Tensor]:
        """The cross-entropy and the logits of one reading."""
        logits = network.task_logits(network(batch), batch, self._head)
        return cross_entropy(logits, batch, self._label_smoothing), logits

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and the head once per text, at each reading."""
        return self.passes * network.training_flops(batch, texts=batch.texts)


class JointClassification(Classification):
    """TLM's internal batch: rho2 * L_mlm + L_task, the same masked input feeding both heads (TLM, Eq. 2).

    With `normalize` the sum is divided by rho2 + 1, as the authors' code does, which keeps its size near that of the
    external batches' loss. With rho2 = 0 the masked-LM head is not computed.
    """

    def __init__(
        self,
        name: str,
        stream: TextStream,
        labels: NDArray[np.int64],
        *,
        rho2: float,
        normalize: bool,
        head: str = TASK,
    ) -> None:
        super().__init__(name, stream, labels, head=head)
        self.heads = (head, MASKED_LM) if rho2 else (head,)
        self._rho2, self._scale = rho2, 1.0 / (rho2 + 1.0) if normalize else 1.0

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Both losses from one pass through the body."""
        hidden = network(batch)
        task = task_loss(network, hidden, batch, self._head)
        if self._rho2 == 0:
            return Loss(self._scale * task, {"task": task})
        mlm = network.masked_lm_loss(hidden, batch)
        return Loss(self._scale * (self._rho2 * mlm + task), {"mlm": mlm, "task": task})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and both heads."""
        return network.training_flops(batch, texts=batch.texts, masked=batch.masked if self._rho2 else 0)


def task_loss(network: Network, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
    """Cross-entropy of the class logits of (N, hidden)."""
    return cross_entropy(network.task_logits(hidden, batch, head), batch)


def cross_entropy(logits: Tensor, batch: TextBatch, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of class logits (S, classes), times the texts' weights, which hold the division by a sum."""
    assert batch.labels is not None
    assert batch.weights is not None
    each = functional.cross_entropy(
        logits, batch.labels, ignore_index=IGNORED, reduction="none", label_smoothing=label_smoothing
    )
    return (each * batch.weights).sum()


def symmetric_divergence(logits: Tensor, other: Tensor, batch: TextBatch) -> Tensor:
    """KL(p || q) + KL(q || p) of two answers (S, classes), times the texts' weights; texts of padding have none.

    >>> from types import SimpleNamespace
    >>> batch = SimpleNamespace(weights=torch.ones(1))
    >>> round(symmetric_divergence(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]]), batch).item(), 4)
    0.2311
    """
    assert batch.weights is not None
    log_p, log_q = logits.log_softmax(-1, torch.float32), other.log_softmax(-1, torch.float32)
    # The sum of p (log p - log q) and q (log q - log p) in one product.
    each = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)  # (S,)
    return (each * batch.weights).sum()
