"""Gradients of many texts as rows: each text's gradient of a weight is a sum of outer products, stored as factors.

For a weight W (height, width) that maps inputs to outputs, a text's gradient is the sum over its tokens of
(gradient at the output) x (input). A row holds the two factors of one such product and the text that owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """A weight, or the part of its rows in a product of its own, such as that of queries, keys or values.

    >>> str(Block("layers.1.attn.Wqkv", 16, 16, first=16, whole=48))
    'layers.1.attn.Wqkv[16:32]'
    """

    layer: str
    height: int
    width: int
    first: int = 0
    whole: int | None = None

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.height * self.width

    def __str__(self) -> str:
        cut = self.whole is not None and self.height != self.whole
        return f"{self.layer}[{self.first}:{self.first + self.height}]" if cut else self.layer


@dataclass(frozen=True, kw_only=True)
class Rows:
    """R outer products; subclasses define the left factors."""

    right: Tensor  # (R, width)
    owners: Tensor  # (R,) int64, ascending

    def part(self, which: slice | Tensor) -> Self:
        """Return some of the rows."""
        return replace(self, **{name: value[which] for name, value in vars(self).items()})

    def in_order(self) -> Self:
        """Return the rows sorted by owner."""
        return self.part(torch.argsort(self.owners, stable=True))

    @property
    def bytes(self) -> int:
        """The bytes in memory."""
        return sum(value.nbytes for value in vars(self).values())


@dataclass(frozen=True, kw_only=True)
class LinearRows(Rows):
    """Rows of a matrix product: the gradient at the output times the input, which is `right`."""

    left: Tensor  # (R, height)


@dataclass(frozen=True, kw_only=True)
class LookupRows(Rows):
    """Rows of looked-up word vectors: the one-hot vector of the token times the gradient at its vector, `right`."""

    tokens: Tensor  # (R,) int64


AnyRows = TypeVar("AnyRows", bound=Rows)
Uses = tuple[Rows, ...]
"""The rows of a block, one item per kind; word vectors have two kinds if the masked-LM head shares them."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of `count` texts or units of texts for every block."""

    count: int
    blocks: dict[Block, Uses]
    most_rows: int | None = None
    """The largest number of rows of one kind per text and block; None if that would synchronize the device."""

    def merged(self, units: Tensor, shares: Tensor, count: int) -> Gradients:
        """Return sums over texts: text i adds `shares[i]` times its gradient to unit `units[i]`.

        >>> block = Block("W", 1, 1)
        >>> rows = LinearRows(left=torch.ones(2, 1), right=torch.tensor([[3.0], [5.0]]), owners=torch.tensor([0, 1]))
        >>> both = Gradients(2, {block: (rows,)}).merged(torch.tensor([0, 0]), torch.tensor([0.5, 0.5]), 1)
        >>> both.blocks[block][0].right.tolist()
        [[1.5], [2.5]]
        """
        blocks = {block: tuple(_weighted(rows, units, shares) for rows in uses) for block, uses in self.blocks.items()}
        return Gradients(count, blocks)


def average(readings: Sequence[Gradients]) -> Gradients:
    """Return the mean gradients of several readings of the same texts, such as under several masks.

    >>> block, owners = Block("W", 1, 1), torch.tensor([0])
    >>> first, second = (LinearRows(left=torch.ones(1, 1), right=torch.tensor([[x]]), owners=owners) for x in (2., 4.))
    >>> mean = average([Gradients(1, {block: (first,)}), Gradients(1, {block: (second,)})])
    >>> (mean.blocks[block][0].left * mean.blocks[block][0].right).sum().item()
    3.0
    """
    first, share = readings[0], 1.0 / len(readings)
    if any(reading.count != first.count or reading.blocks.keys() != first.blocks.keys() for reading in readings):
        raise ValueError("only gradients of the same texts and layers can be averaged")
    blocks: dict[Block, Uses] = {}
    for block in first.blocks:
        uses = by_kind([rows for reading in readings for rows in reading.blocks[block]])
        blocks[block] = tuple(replace(rows, right=rows.right * share) for rows in uses)
    most_rows = [reading.most_rows for reading in readings if reading.most_rows is not None]
    return Gradients(first.count, blocks, sum(most_rows) if len(most_rows) == len(readings) else None)


def by_kind(uses: Sequence[Rows]) -> Uses:
    """Return the rows of each kind, concatenated."""
    kinds = dict.fromkeys(type(rows) for rows in uses)
    return tuple(_concatenated([rows for rows in uses if type(rows) is kind]) for kind in kinds)


def _concatenated(parts: Sequence[AnyRows]) -> AnyRows:
    if len(parts) == 1:
        return parts[0]
    values = {name: torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0])}
    return replace(parts[0], **values).in_order()


def _weighted(rows: AnyRows, units: Tensor, shares: Tensor) -> AnyRows:
    right = rows.right * shares.to(rows.right.dtype)[rows.owners, None]
    return replace(rows, right=right, owners=units[rows.owners]).in_order()


@dataclass(frozen=True)
class Units:
    """The unit of each text; a unit's gradient is the mean over its texts."""

    numbers: NDArray[np.int64]  # (texts,), the unit of each text
    count: int

    @classmethod
    def single(cls, texts: int) -> Units:
        """Return units of a single text."""
        return cls(np.arange(texts), texts)

    @classmethod
    def consecutive(cls, texts: int, size: int) -> Units:
        """Return mini-batches of `size` neighbors (B_p and B_t of ISS); the last may be smaller.

        >>> Units.consecutive(5, 2).numbers.tolist()
        [0, 0, 1, 1, 2]
        """
        return cls(np.arange(texts) // size, -(-texts // size))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The share of each text in the mean of its unit."""
        return 1.0 / np.bincount(self.numbers, minlength=self.count)[self.numbers]

    def merge(
        self, gradients: Gradients, texts: NDArray[np.int64] | None = None
    ) -> tuple[Gradients, NDArray[np.int64]]:
        """Return the sums of some texts' gradients by unit, and the numbers of those units; `texts` are indices."""
        texts = np.arange(gradients.count) if texts is None else texts
        if len(texts) != gradients.count:
            raise ValueError(f"{len(texts)} indices for the gradients of {gradients.count} texts")
        distinct, local = np.unique(self.numbers[texts], return_inverse=True)
        device = next(iter(gradients.blocks.values()))[0].owners.device
        units, shares = (torch.from_numpy(values).to(device) for values in (local, self.shares[texts]))
        return gradients.merged(units, shares, len(distinct)), distinct
