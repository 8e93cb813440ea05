"""Gradients of single texts, for chosen weights of a network's body and any loss.

Weights are caught wherever they are used. One attention output projection of the lean encoder has a faster path: the
encoder is split there. The part below takes most of the time and no gradient, so it can be compiled as any forward
pass. In the last layer everything after attention works on each position alone: there the part above runs only where
the loss reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from endtask.encoders.attention import Guide, guide_for
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.device_context import DeviceContext, allow_shapes
from endtask.encoders.lean_layers import Layer, LeanEncoder
from endtask.encoders.network import TASK, Network
from endtask.gradients.capture import Capture, Use, choose_weights, frozen, rows_of, wide
from endtask.gradients.rows import Block, Gradients, LinearRows, Rows, average, by_kind


class GradientEngine:
    """Computes the gradients of each text of a batch, as rows.

    Dropout is off, nothing below the lowest chosen weight is differentiated, and no gradient of a weight is ever
    formed; the network is left as it was. Rows are float32, or float64 where the network is.

    `compiled` makes the split lean encoder faster on a GPU; for other weights it has no effect.
    """

    def __init__(
        self,
        network: Network,
        layers: Sequence[str] = ("last",),
        context: DeviceContext | None = None,
        *,
        compiled: bool = False,
    ) -> None:
        self.network = network
        self.weights = choose_weights(network, layers)
        self.context = context or DeviceContext(network.embeddings.device)
        number = number_of(network, self.weights)
        self._split = None if number is None else SplitEncoder(network, self.context, number, compiled=compiled)
        self._is_compiled = compiled and number is not None

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Return the gradient of each text's loss, in the order of the texts."""
        moved = batch.to(self.context.device)
        with frozen(self.network), nullcontext() if self._is_compiled else self.network.uncompiled():
            if self._split is None:
                return self._caught(moved, losses)
            return replace(self._split.gradients(moved, losses), most_rows=self._split.most_rows(batch, losses))

    def _caught(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Return gradients of any weights, captured wherever they are used."""
        uses, total = self._forward(batch, losses)
        slopes = torch.autograd.grad(total, [use.output for use in uses], allow_unused=True)
        blocks: dict[Block, list[Rows]] = {}
        for use, slope in zip(uses, slopes, strict=True):
            slope = torch.zeros_like(use.output) if slope is None else slope
            blocks.setdefault(use.block, []).append(rows_of(use, slope, batch))
        return Gradients(batch.texts, {block: by_kind(rows) for block, rows in blocks.items()})

    def _forward(self, batch: TextBatch, losses: TextLosses) -> tuple[list[Use], Tensor]:
        with self.context.autocast(), Capture(self.weights) as capture:
            hidden = self.network(batch)
            capture.in_head = True
            total = losses(self.network, hidden, batch).sum()
        missing = self.weights.keys() - {use.block.layer for use in capture.uses}
        if missing:
            raise ValueError(f"no use of {', '.join(sorted(missing))} was seen in the forward pass")
        return capture.uses, total


@dataclass(frozen=True)
class Readings:
    """The same texts in one batch for each mask: their gradients are means over the masks."""

    batches: tuple[TextBatch, ...]

    def pin(self) -> Readings:
        """Return a copy in pinned memory."""
        return Readings(tuple(batch.pin() for batch in self.batches))

    def gradients(self, engine: GradientEngine, losses: TextLosses) -> Gradients:
        """Return the mean over the masks."""
        return average([engine.gradients(batch, losses) for batch in self.batches])


class SplitEncoder:
    """Gradients of the attention output projection of one layer, without autograd for the part below it."""

    def __init__(self, network: Network, context: DeviceContext, number: int, *, compiled: bool) -> None:
        assert isinstance(network.encoder, LeanEncoder)
        self._network, self._encoder, self._context, self._number = network, network.encoder, context, number
        self._is_last = number == len(network.encoder.layers) - 1
        height, width = layer_of(network.encoder, number).attn.Wo.weight.shape
        self._block = Block(_path(number), height, width, whole=height)
        if compiled:
            allow_shapes()
        # Batches of one fixed shape compile once; for others the compiler makes sizes variable when it meets them.
        self._lower = torch.compile(lower) if compiled else lower
        self._upper = torch.compile(upper) if compiled else upper

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Return the gradients of each text, in order; the caller freezes all weights."""
        guide = guide_for(self._network.backend, batch)
        reading = reading_of(losses, self._network, batch) if self._is_last else None
        read = None if reading is None else reading.positions
        with self._context.autocast():
            with torch.no_grad():
                hidden, mixed, projected = self._lower(
                    self._encoder, self._number, batch, guide, self._network.dtype, read
                )
            projected.requires_grad_(True)
            above = batch if reading is None else reading.batch
            total = self._upper(self._network, self._number, hidden, projected, above, guide, losses)
        (slope,) = torch.autograd.grad(total, projected)
        if reading is None:
            rows = rows_of(Use(self._block, mixed, projected, in_head=False), slope, batch)
        else:
            rows = _rows_read(mixed, slope, reading)
        return Gradients(batch.texts, {self._block: (rows,)})

    def most_rows(self, batch: TextBatch, losses: TextLosses) -> int | None:
        """Return the most rows of a text from a batch on the CPU; None where that would synchronize the device."""
        if not self._is_last or losses is not masked_lm_losses or batch.text_ids.device.type != "cpu":
            return None
        assert batch.masked_positions is not None
        owners = batch.text_ids[batch.masked_positions[: batch.masked]]
        return int(torch.bincount(owners, minlength=1).max())


def number_of(network: Network, layers: Iterable[str]) -> int | None:
    """Return the layer to split at, from 0, where an attention output projection of the lean encoder is chosen alone.

    >>> from types import SimpleNamespace as Some
    >>> lean = Some(architecture=Some(splits_layers=True), config=Some(num_hidden_layers=12))
    >>> number_of(lean, ["layers.11.attn.Wo"]), number_of(lean, ["layers.11.mlp.Wo"])
    (11, None)
    """
    chosen = list(layers)
    if not network.architecture.splits_layers:
        return None
    return next((number for number in range(network.config.num_hidden_layers) if chosen == [_path(number)]), None)


def layer_of(encoder: LeanEncoder, number: int) -> Layer:
    """Return a layer by its number, from 0."""
    layer = encoder.layers[number]
    assert isinstance(layer, Layer)
    return layer


def lower(
    encoder: LeanEncoder, number: int, batch: TextBatch, guide: Guide, dtype: torch.dtype, read: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The stream before a layer, what its output projection reads and what that gives, at some or all positions.

    (N,) -> three times (M, hidden)
    """
    cosine, sine = encoder.angles(batch.position_ids)
    hidden = encoder.embeddings(batch.input_ids, dtype)
    for below in range(number):
        hidden = encoder.layers[below](hidden, cosine, sine, guide)
    layer = layer_of(encoder, number)
    mixed = layer.attn.mix(layer.attn_norm(hidden), cosine, sine, guide)
    if read is not None:
        hidden, mixed = hidden[read], mixed[read]
    return hidden, mixed, layer.attn.Wo(mixed)


def upper(
    network: Network, number: int, hidden: Tensor, projected: Tensor, batch: TextBatch, guide: Guide, losses: TextLosses
) -> Tensor:
    """The sum of all losses, from the stream before a layer and the output of its projection: (M, hidden) -> ()"""
    encoder = network.encoder
    assert isinstance(encoder, LeanEncoder)
    hidden = layer_of(encoder, number).after_attention(hidden + projected)
    if number + 1 < len(encoder.layers):
        cosine, sine = encoder.angles(batch.position_ids)
        for above in range(number + 1, len(encoder.layers)):
            hidden = encoder.layers[above](hidden, cosine, sine, guide)
    return losses(network, encoder.final_norm(hidden), batch).sum()


def _rows_read(mixed: Tensor, slope: Tensor, reading: Reading) -> LinearRows:
    real = slice(reading.real)
    return LinearRows(left=wide(slope[real]), right=wide(mixed[real]), owners=reading.batch.text_ids[real])


def _path(number: int) -> str:
    return f"layers.{number}.attn.Wo"


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
