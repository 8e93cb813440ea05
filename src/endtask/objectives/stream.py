"""Batches of packed texts for a network: the plan of what comes when, and the layout that its encoder wants."""

from __future__ import annotations

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
    """`batch(step)`: texts laid out for the network, masked if a masking is given, roughly in the order if one is."""

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
    ) -> None:
        self._name, self._texts, self._seed, self._masking = name, texts, seed, masking
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
        return self.plan.positions(step)

    def batch(self, step: int) -> TextBatch:
        """The batch of a step."""
        batch = lay_out(self._texts, self.positions(step), self._layout)
        if self._masking is None:
            return batch
        return self._masking.apply(batch, generator(self._seed, "mask", self._name, step), self._room)
