"""The lean encoder cut at one attention output projection: the half below without autograd, the half above with.

What lies below is most of the work and takes no gradient, so it can be compiled as any forward pass. In the last layer
all that follows attention works on each position alone: there the half above runs only where the loss reads.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from endtask.gradients.capture import Use, rows_of, wide
from endtask.gradients.losses import Reading, TextLosses, masked_lm_losses, reading_of
from endtask.gradients.rows import Block, Gradients, LinearRows
from endtask.models.attention import Guide, guide_for
from endtask.models.batch import TextBatch
from endtask.models.compiling import allow_shapes
from endtask.models.lean import Layer, LeanEncoder
from endtask.models.network import Network
from endtask.models.place import Place


class Halves:
    """Gradients of the attention output projection of one layer."""

    def __init__(self, network: Network, place: Place, number: int, *, compiled: bool) -> None:
        assert isinstance(network.body, LeanEncoder)
        self._network, self._body, self._place, self._number = network, network.body, place, number
        self._is_last = number == len(network.body.layers) - 1
        height, width = layer_of(network.body, number).attn.Wo.weight.shape
        self._block = Block(_path(number), height, width, whole=height)
        if compiled:
            allow_shapes()
        # Batches that fill one room have one shape; for others the compiler makes sizes variable when it meets them.
        self._lower = torch.compile(lower) if compiled else lower
        self._upper = torch.compile(upper) if compiled else upper

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """Of each text, in the order of the texts; all weights are frozen before."""
        guide = guide_for(self._network.backend, batch)
        reading = reading_of(losses, self._network, batch) if self._is_last else None
        read = None if reading is None else reading.positions
        with self._place.autocast():
            with torch.no_grad():
                hidden, mixed, projected = self._lower(
                    self._body, self._number, batch, guide, self._network.dtype, read
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
        """Of one text, where a batch that still lies on the CPU tells it; the device would have to be waited for."""
        if not self._is_last or losses is not masked_lm_losses or batch.text_ids.device.type != "cpu":
            return None
        assert batch.masked_positions is not None
        owners = batch.text_ids[batch.masked_positions[: batch.masked]]
        return int(torch.bincount(owners, minlength=1).max())


def number_of(network: Network, layers: Iterable[str]) -> int | None:
    """The layer to cut at, from 0, where the chosen weights are one attention output projection of the lean encoder.

    >>> from types import SimpleNamespace as Some
    >>> lean = Some(architecture=Some(name="lean"), config=Some(num_hidden_layers=12))
    >>> number_of(lean, ["layers.11.attn.Wo"]), number_of(lean, ["layers.11.mlp.Wo"])
    (11, None)
    """
    chosen = list(layers)
    if network.architecture.name != "lean":
        return None
    return next((number for number in range(network.config.num_hidden_layers) if chosen == [_path(number)]), None)


def layer_of(body: LeanEncoder, number: int) -> Layer:
    """A layer by its number, from 0."""
    layer = body.layers[number]
    assert isinstance(layer, Layer)
    return layer


def lower(
    body: LeanEncoder, number: int, batch: TextBatch, guide: Guide, dtype: torch.dtype, read: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The stream before a layer, what its output projection reads and what that gives, at some or all positions.

    (N,) -> three times (M, hidden)
    """
    cosine, sine = body.angles(batch.position_ids)
    hidden = body.embeddings(batch.input_ids, dtype)
    for below in range(number):
        hidden = body.layers[below](hidden, cosine, sine, guide)
    layer = layer_of(body, number)
    mixed = layer.attn.mix(layer.attn_norm(hidden), cosine, sine, guide)
    if read is not None:
        hidden, mixed = hidden[read], mixed[read]
    return hidden, mixed, layer.attn.Wo(mixed)


def upper(
    network: Network, number: int, hidden: Tensor, projected: Tensor, batch: TextBatch, guide: Guide, losses: TextLosses
) -> Tensor:
    """The sum of all losses, from the stream before a layer and the output of its projection: (M, hidden) -> ()"""
    body = network.body
    assert isinstance(body, LeanEncoder)
    hidden = layer_of(body, number).after_attention(hidden + projected)
    if number + 1 < len(body.layers):
        cosine, sine = body.angles(batch.position_ids)
        for above in range(number + 1, len(body.layers)):
            hidden = body.layers[above](hidden, cosine, sine, guide)
    return losses(network, body.final_norm(hidden), batch).sum()


def _rows_read(mixed: Tensor, slope: Tensor, reading: Reading) -> LinearRows:
    real = slice(reading.real)
    return LinearRows(left=wide(slope[real]), right=wide(mixed[real]), owners=reading.batch.text_ids[real])


def _path(number: int) -> str:
    return f"layers.{number}.attn.Wo"
