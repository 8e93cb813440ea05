"""Batches of packed texts for a network: which texts each step reads, and their layout for its encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from endtask.config import BatchSize
from endtask.encoders.batch import BatchShape, TextBatch, batch_shape_for, lay_out
from endtask.encoders.network import Network
from endtask.objectives.masking import Masking
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.sampling import BatchPlan


class TextStream:
    """Batches of packed texts, laid out for a network; with a `masking`, also masked.

    `left_out` returns which examples the batch of a step must leave out; the batch becomes smaller.
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
        left_out: Callable[[int], NDArray[np.bool_]] | None = None,
    ) -> None:
        self._left_out = left_out
        self._name, self.texts, self._seed, self._masking = name, texts, seed, masking
        layout = network.layout(int(texts.lengths.max()))
        # Encoders that compute padded tables save padding if batches hold texts of similar lengths.
        self._by_length = layout.grid and not network.fixed_shapes
        self._batch_size = batch_size
        self._all = BatchPlan(texts.lengths, batch_size, seed, name, group_by_length=self._by_length)
        self.plan = self._all
        self._only: NDArray[np.int64] | None = None
        self._fixed_shape: BatchShape | None = None
        if network.fixed_shapes:
            self._fixed_shape = batch_shape_for(*self.plan.most, masking.probability if masking else 0.0, layout)
        self._layout = replace(layout, fixed_shape=self._fixed_shape)

    def narrow(self, only: NDArray[np.int64] | None) -> None:
        """Read only these texts from now on; None: all texts again. Not thread-safe with `batch`."""
        self.plan, self._only = self._all, only
        if only is not None:
            lengths, size = self.texts.lengths[only], self._batch_size
            self.plan = BatchPlan(lengths, size, self._seed, self._name, group_by_length=self._by_length)

    def positions(self, step: int) -> NDArray[np.int64]:
        """Return the texts of a step's batch."""
        if self._left_out is None:
            return self._planned(step)
        left_out = self._left_out(step)
        # A batch without any remaining text is replaced by the next batch that has some.
        batches = (self._planned(step + later) for later in range(2 * self.plan.batches_per_epoch))
        return next(remaining for batch in batches if len(remaining := batch[~left_out[batch]]))

    def _planned(self, step: int) -> NDArray[np.int64]:
        # The fixed shape was computed for batches of all texts; batches of some texts may exceed it.
        positions = self.plan.positions(step)
        return positions if self._only is None else self.fitting(self._only[positions])

    def fitting(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first of these texts that fit into a batch of the fixed shape; all without a fixed shape."""
        if self._fixed_shape is None:
            return positions
        tokens, texts = self._all.most
        return positions[:texts][np.cumsum(self.texts.lengths[positions[:texts]]) <= tokens]

    def lay_out(self, positions: NDArray[np.int64]) -> TextBatch:
        """Return these texts as a batch without masks."""
        return lay_out(self.texts, positions, self._layout)

    def batch(self, step: int) -> TextBatch:
        """Return the batch of a step."""
        text_share, token_share = self.plan.shares(step)
        batch = replace(self.lay_out(self.positions(step)), text_share=text_share, token_share=token_share)
        if self._masking is None:
            return batch
        return self._masking.apply(batch, generator(self._seed, "mask", self._name, step), self._fixed_shape)
