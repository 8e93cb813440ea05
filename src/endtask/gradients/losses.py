"""Losses with one number per text, whose gradients are those of each text alone.

Attention stays inside a text, so one backward pass over their sum gives every text's own gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import TASK, Network

TextLosses = Callable[[Network, Tensor, TextBatch], Tensor]
"""Network, one vector per token (N, hidden), batch -> one loss per text (S,)."""


def masked_lm_losses(network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
    """Return each text's mean cross-entropy over its masked positions; 0 without any: (N, hidden) -> (S,)."""
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    logits = network.masked_logits(hidden, batch.masked_positions)  # (M, vocabulary)
    each = functional.cross_entropy(logits, batch.masked_targets, ignore_index=IGNORED, reduction="none")  # (M,)
    return mean_by_text(each, batch.text_ids[batch.masked_positions], batch.masked_targets != IGNORED, _texts(batch))


def task_losses(network: Network, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
    """Return each text's task loss, for tags the mean over its words; 0 for texts of padding: (N, hidden) -> (S,)."""
    assert batch.labels is not None
    task_type = network.type_of(head)
    errors: Tensor = task_type.losses(network.task_logits(hidden, batch, head), batch)
    if task_type.per_token:
        return mean_by_text(errors, batch.text_ids, batch.labels != IGNORED, _texts(batch))
    return errors if batch.weights is None else errors * (batch.weights > 0)


@dataclass(frozen=True)
class Reading:
    """The positions whose vectors a loss reads, and the batch as if it had no other tokens.

    The first `real` positions are those of real texts and tokens; the rest is padding.
    """

    positions: Tensor  # (M,) int64, indices into the N tokens
    real: int
    batch: TextBatch


def reading_of(losses: TextLosses, network: Network, batch: TextBatch) -> Reading | None:
    """Return what a loss reads, where that is less than all tokens; None: all tokens."""
    if losses is masked_lm_losses:
        return _masked_positions(batch)
    reads_texts = losses is task_losses and not network.task_type.per_token
    if reads_texts and network.architecture.pooling(network.config) == "cls":
        return _first_tokens(batch)
    return None


def _masked_positions(batch: TextBatch) -> Reading:
    assert batch.masked_positions is not None
    where = batch.masked_positions
    each = torch.arange(len(where), device=where.device)
    return Reading(where, batch.masked, replace(batch, masked_positions=each, text_ids=batch.text_ids[where]))


def _first_tokens(batch: TextBatch) -> Reading:
    # An empty text of padding starts behind the last token.
    where = batch.offsets[:-1].long().clamp(max=len(batch.input_ids) - 1)
    indices = torch.arange(len(where) + 1, device=where.device)
    return Reading(where, batch.texts, replace(batch, offsets=indices.int(), text_ids=indices[:-1]))


def mean_by_text(values: Tensor, text_ids: Tensor, counted: Tensor, texts: int) -> Tensor:
    """Return the mean of each text's counted values, 0 where it has none: (M,) -> (texts,).

    >>> import torch
    >>> mean_by_text(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([0, 0, 2]), torch.tensor([True] * 3), 3).tolist()
    [2.0, 0.0, 9.0]
    """
    sizes = values.new_zeros(texts).index_add(0, text_ids, counted.to(values.dtype))
    # Each value is divided before the sum: a text's gradient then does not depend on other texts of the batch.
    return values.new_zeros(texts).index_add(0, text_ids, values * counted / sizes.clamp(min=1)[text_ids])


def _texts(batch: TextBatch) -> int:
    return len(batch.offsets) - 1
