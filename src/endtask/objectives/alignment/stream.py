"""Batches of inputs that are made on the way, such as pairs: planned by the most room each may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from endtask.config import BatchSize
from endtask.encoders.batch import TextBatch, lay_out, lay_out_tokens, room_for
from endtask.encoders.network import Network
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.sampling import BatchPlan

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class MadeInput:
    """The tokens of one input, and where its second text starts: its length if there is none."""

    tokens: Tokens
    second: int


class NothingToMake(ValueError):
    """The texts hold nothing that inputs could be made of."""


class MadeStream:
    """Which texts a step makes inputs of, the chance to make them by, and their layout.

    `chosen` are the texts that inputs can be made of, those that have what an input `needs`; `lengths`, one for each,
    are the most tokens of its input.
    """

    def __init__(
        self,
        name: str,
        chosen: NDArray[np.int64],
        lengths: NDArray[np.int64],
        network: Network,
        *,
        needs: str,
        batch_size: BatchSize,
        seed: int,
    ) -> None:
        if len(chosen) == 0:
            raise NothingToMake(f"there is no {needs}")
        self._name, self._seed, self._chosen = name, seed, chosen
        layout = network.layout(int(lengths.max()))
        grouped = layout.grid and not network.fixed_shapes
        self.plan = BatchPlan(lengths, batch_size, seed, name, group_by_length=grouped)
        room = room_for(*self.plan.most, 0.0, layout) if network.fixed_shapes else None
        self._layout = replace(layout, room=room)

    def positions(self, step: int) -> NDArray[np.int64]:
        """The texts of a step's batch."""
        return self._chosen[self.plan.positions(step)]

    def random(self, step: int) -> np.random.Generator:
        """The chance of a step."""
        return generator(self._seed, "make", self._name, step)

    def lay_out_texts(self, texts: PackedTexts, positions: NDArray[np.int64]) -> TextBatch:
        """The batch of some packed texts as they are."""
        return lay_out(texts, positions, self._layout)

    def lay_out(self, inputs: Sequence[MadeInput]) -> TextBatch:
        """The batch of some inputs."""
        lengths = np.array([len(one.tokens) for one in inputs], dtype=np.int64)
        second = np.array([one.second for one in inputs], dtype=np.int64)
        return lay_out_tokens(np.concatenate([one.tokens for one in inputs]), lengths, second, self._layout)


def half_of(count: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Which of `count` inputs are to be positive: half of them, and of an odd number one more or less by chance.

    >>> int(half_of(8, np.random.default_rng(0)).sum())
    4
    """
    positive = np.arange(count) < (count + int(random.integers(2))) // 2
    return random.permutation(positive)
