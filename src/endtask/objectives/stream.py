"""Batches of packed texts for a network: the plan of what comes when, and the layout that its encoder wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from endtask.models.batch import Room, TextBatch, lay_out, room_for
from endtask.models.network import Network
from endtask.objectives.masking import Masking
from endtask.seeds import generator
from endtask.settings import BatchSize
from endtask.text.packed import PackedTexts
from endtask.text.sampling import BatchPlan


class TextStream:
    """`batch(step)`: texts laid out for the network, masked if a masking is given, roughly in the order if one is.

    `left_out` says which texts a step's batch must not hold; it is then so much smaller.
    """

    def __init__(
        self,
        name: str,
        texts: PackedTexts,
        network: Network,
        *,
        batch_size: BatchSize,
        seed: int,
        masking: Masking | None = None,
        order: NDArray[np.int64] | None = None,
        left_out: Callable[[int], NDArray[np.bool_]] | None = None,
    ) -> None:
        self._left_out = left_out
        self._name, self.texts, self._seed, self._masking = name, texts, seed, masking
        layout = network.layout(int(texts.lengths.max()))
        # Where a padded table is computed, and its width may change, like lengths belong together.
        self.plan = BatchPlan(
            texts.lengths,
            batch_size,
            seed,
            name,
            group_by_length=layout.grid and not network.fixed_shapes,
            order=order,
        )
        self._room: Room | None = None
        if network.fixed_shapes:
            self._room = room_for(*self.plan.most, masking.probability if masking else 0.0, layout)
        self._layout = replace(layout, room=self._room)

    def positions(self, step: int) -> NDArray[np.int64]:
        """The texts of a step's batch."""
        if self._left_out is None:
            return self.plan.positions(step)
        left_out = self._left_out(step)
        # Where nothing is left of a batch, the next one of which something is.
        batches = (self.plan.positions(step + later) for later in range(2 * self.plan.batches_per_epoch))
        return next(kept for batch in batches if len(kept := batch[~left_out[batch]]))

    def fitting(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Texts of one's own choice, without the last few where a batch has no room for all of them."""
        if self._room is None:
            return positions
        return positions[np.cumsum(self.texts.lengths[positions]) <= self._room.tokens]

    def lay_out(self, positions: NDArray[np.int64]) -> TextBatch:
        """Texts of one's own choice as an unmasked batch."""
        return lay_out(self.texts, positions, self._layout)

    def batch(self, step: int) -> TextBatch:
        """The batch of a step."""
        batch = self.lay_out(self.positions(step))
        if self._masking is None:
            return batch
        return self._masking.apply(batch, generator(self._seed, "mask", self._name, step), self._room)
