"""Gradients of single texts, for chosen weights of a network's body and any loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from endtask.gradients.capture import Capture, Use, frozen
from endtask.gradients.layers import choose_weights
from endtask.gradients.losses import TextLosses
from endtask.gradients.rows import Block, Gradients, LinearRows, LookupRows, Rows, by_kind
from endtask.models.architecture import from_table
from endtask.models.batch import TextBatch
from endtask.models.network import Network
from endtask.models.place import Place


class GradientEngine:
    """Reads batches and gives each text's own gradients, as rows.

    Dropout is off, nothing below the lowest chosen weight is differentiated, and no gradient of a weight is ever
    formed; the network is left as it was. Rows are float32, or float64 where the network is.
    """

    def __init__(self, network: Network, layers: Sequence[str] = ("last",), place: Place | None = None) -> None:
        self.network = network
        self.weights = choose_weights(network, layers)
        self.place = place or Place(network.embeddings.device)

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """The gradient of each text's loss, in the order of the texts."""
        batch = batch.to(self.place.device)
        with frozen(self.network), self.network.uncompiled():
            uses, total = self._forward(batch, losses)
            slopes = torch.autograd.grad(total, [use.output for use in uses], allow_unused=True)
        blocks: dict[Block, list[Rows]] = {}
        for use, slope in zip(uses, slopes, strict=True):
            slope = torch.zeros_like(use.output) if slope is None else slope
            blocks.setdefault(use.block, []).append(rows_of(use, slope, batch))
        return Gradients(batch.texts, {block: by_kind(rows) for block, rows in blocks.items()})

    def _forward(self, batch: TextBatch, losses: TextLosses) -> tuple[list[Use], Tensor]:
        with self.place.autocast(), Capture(self.weights) as capture:
            hidden = self.network(batch)
            capture.in_head = True
            total = losses(self.network, hidden, batch).sum()
        missing = self.weights.keys() - {use.block.layer for use in capture.uses}
        if missing:
            raise ValueError(f"no use of {', '.join(sorted(missing))} was seen in the forward pass")
        return capture.uses, total


def rows_of(use: Use, slope: Tensor, batch: TextBatch) -> Rows:
    """The rows of one use, from the gradient at its output; rows that are zero are left out."""
    owners = _owners(use, batch)
    inputs = use.inputs
    if use.output.dim() == 3:  # a padded table (S, T, ...)
        inputs, slope = from_table(inputs, batch), from_table(slope, batch)
    wanted = slope.any(dim=1)
    if use.is_lookup and use.padding is not None:
        wanted &= inputs != use.padding
    where = wanted.nonzero().squeeze(1)
    kept = _wide(slope[where])
    if use.is_lookup:
        return LookupRows(tokens=inputs[where], right=kept, owners=owners[where])
    return LinearRows(left=kept, right=_wide(inputs[where]), owners=owners[where])


def _owners(use: Use, batch: TextBatch) -> Tensor:
    """The text of each row: of every token in the body, of every masked position in a head."""
    if not use.in_head:
        return batch.text_ids
    assert batch.masked_positions is not None
    if len(use.inputs) != len(batch.masked_positions):
        raise ValueError(f"{use.block} is used in a head at {len(use.inputs)} places that are not the masked ones")
    return batch.text_ids[batch.masked_positions]


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
