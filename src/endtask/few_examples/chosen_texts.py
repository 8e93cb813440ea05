"""Batches of a few chosen texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from endtask.config import BatchSize
from endtask.encoders.batch import room_for
from endtask.encoders.network import Network
from endtask.few_examples.draws import Numbers
from endtask.objectives.stream import TextStream
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.sampling import BatchPlan


class ChosenTexts(TextStream):
    """Batches of some of the texts, by a plan over these alone."""

    def __init__(
        self, name: str, texts: PackedTexts, network: Network, rows: Numbers, plan: BatchPlan, size: int
    ) -> None:
        super().__init__(name, texts, network, batch_size=BatchSize(size, "texts"), seed=0)
        self._rows, self.plan = rows, plan
        if network.fixed_shapes:  # the room for batches of all texts may be too small for these
            longest = np.sort(texts.lengths[rows])[-size:]
            self._room = room_for(int(longest.sum()), len(longest), 0.0, self._layout)
            self._layout = replace(self._layout, room=self._room)

    def positions(self, step: int) -> Numbers:
        """The texts of a step's batch."""
        return self._rows[self.plan.positions(step)]
