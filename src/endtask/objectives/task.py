"""The end task itself, alone (stage 2) or together with masked LM on the same masked input (stage 1 of TLM)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from endtask.models.batch import TextBatch, gather_texts
from endtask.models.network import Network
from endtask.objectives.base import Loss
from endtask.objectives.masked_lm import masked_lm_loss
from endtask.objectives.masking import Masking
from endtask.seeds import generator
from endtask.text.packed import PackedTexts
from endtask.text.sampling import BatchPlan


class Classification:
    """Predict the label of a task text."""

    def __init__(
        self,
        texts: PackedTexts,
        labels: NDArray[np.int64],
        *,
        batch_size: int,
        pad_id: int,
        seed: int,
        name: str = "task",
    ) -> None:
        self.name = name
        self._texts, self._labels = texts, labels
        self._pad_id, self._seed = pad_id, seed
        self.plan = BatchPlan(texts.lengths, batch_size, seed, name)

    def batch(self, step: int) -> TextBatch:
        """The labelled texts of a step."""
        positions = self.plan.positions(step)
        batch = gather_texts(self._texts, positions, self._pad_id)
        return replace(batch, labels=torch.from_numpy(self._labels[positions]))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy of the class logits."""
        value = task_loss(network, network(batch), batch)
        return Loss(value, {"task": value})


class JointClassification(Classification):
    """TLM's internal batch: rho2 * L_mlm + L_task, the same masked input feeding both heads (TLM, Eq. 2).

    With `normalize` the sum is divided by rho2 + 1, as the authors' code does, which keeps its size near that of the
    external batches' loss.
    """

    def __init__(
        self,
        texts: PackedTexts,
        labels: NDArray[np.int64],
        masking: Masking,
        *,
        rho2: float,
        normalize: bool,
        batch_size: int,
        pad_id: int,
        seed: int,
        name: str = "internal",
    ) -> None:
        super().__init__(texts, labels, batch_size=batch_size, pad_id=pad_id, seed=seed, name=name)
        self._masking, self._rho2, self._scale = masking, rho2, 1.0 / (rho2 + 1.0) if normalize else 1.0

    def batch(self, step: int) -> TextBatch:
        """The labelled texts of a step, masked."""
        return self._masking.apply(super().batch(step), generator(self._seed, "mask", self.name, step))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Both losses from one pass through the body."""
        hidden = network(batch)
        mlm, task = masked_lm_loss(network, hidden, batch), task_loss(network, hidden, batch)
        return Loss(self._scale * (self._rho2 * mlm + task), {"mlm": mlm, "task": task})


def task_loss(network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
    """Mean cross-entropy of the class logits of hidden states (B, T, hidden)."""
    assert batch.labels is not None
    return functional.cross_entropy(network.task_logits(hidden, batch), batch.labels)
