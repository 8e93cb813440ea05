"""The loss of each answer of a task's head: one number per text, or per token for tags."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from endtask.encoders.batch import IGNORED, TextBatch


def class_errors(logits: Tensor, batch: TextBatch) -> Tensor:
    """The cross-entropy of each text's class, 0 for padding: (S, classes) -> (S,)."""
    assert batch.labels is not None
    return functional.cross_entropy(logits, batch.labels, ignore_index=IGNORED, reduction="none")


def score_errors(logits: Tensor, batch: TextBatch) -> Tensor:
    """The squared error of each text: (S, 1) -> (S,)."""
    assert batch.labels is not None
    return (_wide(logits)[:, 0] - batch.labels) ** 2


def label_errors(logits: Tensor, batch: TextBatch) -> Tensor:
    """The mean binary cross-entropy of each text's labels: (S, labels) -> (S,)."""
    assert batch.labels is not None
    # Padding asks for nothing; its marks must not make the loss of its logits infinite before its weight of 0 counts.
    wide, wanted = _wide(logits), batch.labels.clamp(min=0.0)
    return functional.binary_cross_entropy_with_logits(wide, wanted.to(wide.dtype), reduction="none").mean(-1)


def tag_errors(logits: Tensor, batch: TextBatch) -> Tensor:
    """The cross-entropy of each token, 0 where none is asked: (N, tags) -> (N,)."""
    return class_errors(_wide(logits), batch)


def _wide(logits: Tensor) -> Tensor:
    """In float32, or float64 where a network is."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
