"""Gradients of single texts, for chosen weights of an encoder and any loss.

`Capture` records every use of the weights. A single attention output projection of the lean encoder has a faster path,
which splits the encoder there. The lower part takes most of the time and needs no gradient, so it can be compiled like
any forward pass. In the last layer everything after attention is independent of other positions, so the upper part runs
only at the positions that the loss reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from endtask.encoders.attention import AttentionMetadata, attention_metadata
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.device_context import DeviceContext, allow_shapes
from endtask.encoders.lean_layers import Layer, LeanEncoder
from endtask.encoders.network import TASK, Network
from endtask.gradients.capture import Capture, Use, choose_weights, frozen, rows_of, wide
from endtask.gradients.rows import Block, Gradients, LinearRows, Rows, average, by_kind


class GradientEngine:
    """Computes the gradient of each text of a batch as rows.

    Dropout is off, backpropagation ends at the lowest chosen weight, and no gradient of a weight is computed; the
    network does not change. Rows are float32, or float64 if the network is.

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
        layer = layer_to_split(network, self.weights)
        self._split = None if layer is None else SplitEncoder(network, self.context, layer, compiled=compiled)
        self._is_compiled = compiled and layer is not None

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Return the gradient of each text's loss, in the order of the texts."""
        moved = batch.to(self.context.device)
        with frozen(self.network), nullcontext() if self._is_compiled else self.network.uncompiled():
            if self._split is None:
                return self._captured(moved, losses)
            return replace(self._split.gradients(moved, losses), most_rows=self._split.most_rows(batch, losses))

    def _captured(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Return gradients of any weights, by capturing their uses."""
        uses, total = self._forward(batch, losses)
        grad_outputs = torch.autograd.grad(total, [use.output for use in uses], allow_unused=True)
        blocks: dict[Block, list[Rows]] = {}
        for use, grad_output in zip(uses, grad_outputs, strict=True):
            grad_output = torch.zeros_like(use.output) if grad_output is None else grad_output
            blocks.setdefault(use.block, []).append(rows_of(use, grad_output, batch))
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
    """The same texts under several masks, one batch each; their gradients are means over the masks."""

    batches: tuple[TextBatch, ...]

    def pin(self) -> Readings:
        """Return a copy in pinned memory."""
        return Readings(tuple(batch.pin() for batch in self.batches))

    def gradients(self, engine: GradientEngine, losses: TextLosses) -> Gradients:
        """Return the mean gradients over the masks."""
        return average([engine.gradients(batch, losses) for batch in self.batches])


class SplitEncoder:
    """Computes gradients of one attention output projection, without autograd below it."""

    def __init__(self, network: Network, context: DeviceContext, number: int, *, compiled: bool) -> None:
        assert isinstance(network.encoder, LeanEncoder)
        self._network, self._encoder, self._context, self._number = network, network.encoder, context, number
        self._is_last = number == len(network.encoder.layers) - 1
        height, width = layer_of(network.encoder, number).attn.Wo.weight.shape
        self._block = Block(_path(number), height, width, whole=height)
        if compiled:
            allow_shapes()
        # Batches of one fixed shape compile once; for other shapes the compiler makes sizes dynamic.
        self._lower = torch.compile(lower) if compiled else lower
        self._upper = torch.compile(upper) if compiled else upper

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Return the gradients of each text, in order; the caller freezes all weights."""
        metadata = attention_metadata(self._network.backend, batch)
        reading = reading_of(losses, self._network, batch) if self._is_last else None
        read = None if reading is None else reading.positions
        with self._context.autocast():
            with torch.no_grad():
                hidden, mixed, projected = self._lower(
                    self._encoder, self._number, batch, metadata, self._network.dtype, read
                )
            projected.requires_grad_(True)
            read_batch = batch if reading is None else reading.batch
            total = self._upper(self._network, self._number, hidden, projected, read_batch, metadata, losses)
        (grad_output,) = torch.autograd.grad(total, projected)
        if reading is None:
            rows = rows_of(Use(self._block, mixed, projected, in_head=False), grad_output, batch)
        else:
            rows = _rows_read(mixed, grad_output, reading)
        return Gradients(batch.texts, {self._block: (rows,)})

    def most_rows(self, batch: TextBatch, losses: TextLosses) -> int | None:
        """Return the largest number of rows of a text, None if that would synchronize the device."""
        if not self._is_last or losses is not masked_lm_losses or batch.text_ids.device.type != "cpu":
            return None
        assert batch.masked_positions is not None
        owners = batch.text_ids[batch.masked_positions[: batch.masked]]
        return int(torch.bincount(owners, minlength=1).max())


def layer_to_split(network: Network, paths: Iterable[str]) -> int | None:
    """Return the index of the layer whose output projection is the only chosen weight of a lean encoder, or None.

    >>> from types import SimpleNamespace as Some
    >>> lean = Some(architecture=Some(splits_layers=True), config=Some(num_hidden_layers=12))
    >>> layer_to_split(lean, ["layers.11.attn.Wo"]), layer_to_split(lean, ["layers.11.mlp.Wo"])
    (11, None)
    """
    chosen = list(paths)
    if not network.architecture.splits_layers:
        return None
    return next((number for number in range(network.config.num_hidden_layers) if chosen == [_path(number)]), None)


def layer_of(encoder: LeanEncoder, number: int) -> Layer:
    """Return a layer by its index."""
    layer = encoder.layers[number]
    assert isinstance(layer, Layer)
    return layer


def lower(
    encoder: LeanEncoder,
    number: int,
    batch: TextBatch,
    metadata: AttentionMetadata,
    dtype: torch.dtype,
    read: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the residual stream before a layer, and input and output of its projection, at some or all positions.

    (N,) -> three times (M, hidden)
    """
    cosine, sine = encoder.angles(batch.position_ids)
    hidden = encoder.embeddings(batch.input_ids, dtype)
    for below in range(number):
        hidden = encoder.layers[below](hidden, cosine, sine, metadata)
    layer = layer_of(encoder, number)
    mixed = layer.attn.mix(layer.attn_norm(hidden), cosine, sine, metadata)
    if read is not None:
        hidden, mixed = hidden[read], mixed[read]
    return hidden, mixed, layer.attn.Wo(mixed)


def upper(
    network: Network,
    number: int,
    hidden: Tensor,
    projected: Tensor,
    batch: TextBatch,
    metadata: AttentionMetadata,
    losses: TextLosses,
) -> Tensor:
    """Return the sum of all losses from the stream before a layer and its projection's output: (M, hidden) -> ()"""
    encoder = network.encoder
    assert isinstance(encoder, LeanEncoder)
    hidden = layer_of(encoder, number).after_attention(hidden + projected)
    if number + 1 < len(encoder.layers):
        cosine, sine = encoder.angles(batch.position_ids)
        for above in range(number + 1, len(encoder.layers)):
            hidden = encoder.layers[above](hidden, cosine, sine, metadata)
    return losses(network, encoder.final_norm(hidden), batch).sum()


def _rows_read(mixed: Tensor, grad_output: Tensor, reading: Reading) -> LinearRows:
    real = slice(reading.real)
    return LinearRows(left=wide(grad_output[real]), right=wide(mixed[real]), owners=reading.batch.text_ids[real])


def _path(number: int) -> str:
    return f"layers.{number}.attn.Wo"


TextLosses = Callable[[Network, Tensor, TextBatch], Tensor]
"""Network, one vector per token (N, hidden), batch -> one loss per text (S,)."""


def masked_lm_losses(network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
    """Return each text's mean cross-entropy over its masked positions, 0 without any: (N, hidden) -> (S,)."""
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    logits = network.masked_logits(hidden, batch.masked_positions)  # (M, vocabulary)
    losses = functional.cross_entropy(logits, batch.masked_targets, ignore_index=IGNORED, reduction="none")  # (M,)
    return mean_by_text(losses, batch.text_ids[batch.masked_positions], batch.masked_targets != IGNORED, _texts(batch))


def task_losses(network: Network, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
    """Return each text's task loss, for tags the mean over its words; 0 for padding texts: (N, hidden) -> (S,)."""
    assert batch.labels is not None
    task_type = network.type_of(head)
    losses: Tensor = task_type.losses(network.task_logits(hidden, batch, head), batch)
    if task_type.per_token:
        return mean_by_text(losses, batch.text_ids, batch.labels != IGNORED, _texts(batch))
    return losses if batch.weights is None else losses * (batch.weights > 0)


@dataclass(frozen=True)
class Reading:
    """The positions whose vectors a loss reads, and the batch reduced to these tokens.

    The first `real` positions belong to real texts; the others are padding.
    """

    positions: Tensor  # (M,) int64, indices into the N tokens
    real: int
    batch: TextBatch


def reading_of(losses: TextLosses, network: Network, batch: TextBatch) -> Reading | None:
    """Return the positions that a known loss reads, or None if it may read all tokens."""
    if losses is masked_lm_losses:
        return _masked_positions(batch)
    reads_texts = losses is task_losses and not network.task_type.per_token
    if reads_texts and network.architecture.pooling(network.config) == "cls":
        return _first_tokens(batch)
    return None


def _masked_positions(batch: TextBatch) -> Reading:
    assert batch.masked_positions is not None
    positions = batch.masked_positions
    indices = torch.arange(len(positions), device=positions.device)
    reduced = replace(batch, masked_positions=indices, text_ids=batch.text_ids[positions])
    return Reading(positions, batch.masked, reduced)


def _first_tokens(batch: TextBatch) -> Reading:
    # An empty padding text starts after the last token.
    positions = batch.offsets[:-1].long().clamp(max=len(batch.input_ids) - 1)
    indices = torch.arange(len(positions) + 1, device=positions.device)
    return Reading(positions, batch.texts, replace(batch, offsets=indices.int(), text_ids=indices[:-1]))


def mean_by_text(values: Tensor, text_ids: Tensor, counted: Tensor, texts: int) -> Tensor:
    """Return the mean of each text's counted values, 0 without any: (M,) -> (texts,).

    >>> import torch
    >>> mean_by_text(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([0, 0, 2]), torch.tensor([True] * 3), 3).tolist()
    [2.0, 0.0, 9.0]
    """
    sizes = values.new_zeros(texts).index_add(0, text_ids, counted.to(values.dtype))
    # Dividing before the sum makes a text's gradient independent of the other texts of the batch.
    return values.new_zeros(texts).index_add(0, text_ids, values * counted / sizes.clamp(min=1)[text_ids])


def _texts(batch: TextBatch) -> int:
    return len(batch.offsets) - 1
