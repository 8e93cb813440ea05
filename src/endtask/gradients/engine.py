"""Gradients of single texts, for chosen weights of a network's body and any loss."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from endtask.gradients.capture import Capture, Use, frozen, rows_of
from endtask.gradients.halves import Halves, number_of
from endtask.gradients.layers import choose_weights
from endtask.gradients.losses import TextLosses
from endtask.gradients.rows import Block, Gradients, Rows, by_kind
from endtask.models.batch import TextBatch
from endtask.models.network import Network
from endtask.models.place import Place


class GradientEngine:
    """Reads batches and gives each text's own gradients, as rows.

    Dropout is off, nothing below the lowest chosen weight is differentiated, and no gradient of a weight is ever
    formed; the network is left as it was. Rows are float32, or float64 where the network is.

    One attention output projection of `lean` (any of the names by depth) has a way of its own, the encoder cut in two
    there, which `compiled` makes faster on a GPU; for other weights it has no effect.
    """

    def __init__(
        self,
        network: Network,
        layers: Sequence[str] = ("last",),
        place: Place | None = None,
        *,
        compiled: bool = False,
    ) -> None:
        self.network = network
        self.weights = choose_weights(network, layers)
        self.place = place or Place(network.embeddings.device)
        number = number_of(network, self.weights)
        self._halves = None if number is None else Halves(network, self.place, number, compiled=compiled)
        self._is_compiled = compiled and number is not None

    def gradients(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """The gradient of each text's loss, in the order of the texts."""
        moved = batch.to(self.place.device)
        with frozen(self.network), nullcontext() if self._is_compiled else self.network.uncompiled():
            if self._halves is None:
                return self._caught(moved, losses)
            return replace(self._halves.gradients(moved, losses), most_rows=self._halves.most_rows(batch, losses))

    def _caught(self, batch: TextBatch, losses: TextLosses) -> Gradients:
        """For any weights, caught wherever they are used."""
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
