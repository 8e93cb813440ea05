"""The identities: products, sums and norms of gradients given as rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat

import torch
from torch import Tensor

from endtask.gradients.rows import AnyRows, Block, LinearRows, LookupRows, Rows, Uses

_MOST_NUMBERS = 1 << 26  # held at once


@contextmanager
def tensor_float(wanted: bool) -> Iterator[None]:
    """Products of float32 inside with factors of 10 bits where the device can, if wanted."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def pair_products(one: Rows, other: Rows) -> Tensor:
    """Inner products of all pairs of rows: (..., R) and (..., R') -> (..., R, R').

    <l r^T, l' r'^T> = (l . l') (r . r'), so no matrix is ever built. Rows may be tables with a line per owner.

    >>> owners = torch.tensor([0])
    >>> one = LinearRows(left=torch.tensor([[1.0, 2.0]]), right=torch.tensor([[3.0]]), owners=owners)
    >>> pair_products(one, LookupRows(tokens=torch.tensor([1]), right=torch.tensor([[5.0]]), owners=owners)).tolist()
    [[30.0]]
    """
    return _left_products(one, other) * (one.right @ other.right.mT)


def _left_products(one: Rows, other: Rows) -> Tensor:
    if isinstance(one, LinearRows) and isinstance(other, LinearRows):
        return one.left @ other.left.mT
    if isinstance(one, LinearRows):
        return _at_tokens(one.left, tokens_of(other))
    if isinstance(other, LinearRows):
        return _at_tokens(other.left, tokens_of(one)).mT
    return (tokens_of(one)[..., :, None] == tokens_of(other)[..., None, :]).to(one.right.dtype)


def tokens_of(rows: Rows) -> Tensor:
    """The places of the ones in rows of looked-up vectors: (R,)."""
    assert isinstance(rows, LookupRows)
    return rows.tokens


def _at_tokens(left: Tensor, tokens: Tensor) -> Tensor:
    """(..., R, vocabulary) at (..., R') -> (..., R, R')"""
    return left.gather(-1, tokens[..., None, :].expand(*left.shape[:-1], -1))


def sums_by_owner(values: Tensor, owners: Tensor, count: int) -> Tensor:
    """Sum neighbouring rows with the same owner, in a fixed order on every device: (R, X) -> (count, X).

    >>> sums_by_owner(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 0, 2]), 3).tolist()
    [[3.0], [0.0], [4.0]]
    """
    return torch.segment_reduce(values, "sum", lengths=_bounds(owners, count).diff(), axis=0, unsafe=True)


def _bounds(owners: Tensor, count: int) -> Tensor:
    """Where the rows of each owner begin, and where the last ones end: (R,), in order -> (count + 1,)."""
    # Without asking the device how many there are, as bincount does.
    return torch.searchsorted(owners, torch.arange(count + 1, device=owners.device))


def matrices(uses: Uses, count: int, block: Block, most: int | None = None) -> Tensor:
    """The gradients themselves: rows -> (count, height, width)."""
    total = uses[0].right.new_zeros((count, block.height, block.width))
    for rows in uses:
        if isinstance(rows, LinearRows):
            padded = tables(rows, count, most)
            total += padded.left.mT @ padded.right
        else:
            _add_lookups(total, rows)
    return total


def _add_lookups(total: Tensor, rows: Rows) -> None:
    """Add looked-up rows to matrices in place: (count, height, width), in a fixed order, which index_put_ has not."""
    places, of_each = torch.unique(rows.owners * total.shape[1] + tokens_of(rows), return_inverse=True)
    order = torch.argsort(of_each, stable=True)
    total.view(-1, total.shape[2])[places] += sums_by_owner(rows.right[order], of_each[order], len(places))


def squared_norms(uses: Uses, count: int, block: Block, most: int | None = None) -> Tensor:
    """Squared length of every owner's gradient, from pairs of its own rows or from its matrix: -> (count,).

    `most` is the most rows of one kind that one owner has; unless it is given, the device is asked and waited for.
    """
    widths = [most_rows((rows,)) if most is None else most for rows in uses]
    linear = all(isinstance(rows, LinearRows) for rows in uses)
    if linear and max(widths) * (block.height + block.width) > block.size:
        parts = by_owners(uses, count, block.size)
        return torch.cat([matrices(part, size, block, most).square().sum((1, 2)) for size, part in parts])
    # Each kind is padded to its own most: a predicted token's row is as long as the vocabulary, a read one's is not.
    lefts = [block.height if isinstance(rows, LinearRows) else 1 for rows in uses]
    numbers = sum(width * (left + block.width + width) for left, width in zip(lefts, widths, strict=True))
    parts = by_owners(uses, count, max(1, numbers))
    return torch.cat([_own_pairs(list(map(tables, part, repeat(size), widths))) for size, part in parts])


def _own_pairs(padded: list[Rows]) -> Tensor:
    return torch.stack([pair_products(one, other).sum((1, 2)) for one in padded for other in padded]).sum(0)


def most_rows(uses: Uses) -> int:
    """The most rows of one kind that one owner has."""
    return max(int(torch.bincount(rows.owners, minlength=1).max()) for rows in uses)


def tables(rows: AnyRows, count: int, most: int | None = None) -> AnyRows:
    """Rows as padded tables with one line per owner: (R, ...) -> (count, most, ...); zeros where there is none."""
    width = most_rows((rows,)) if most is None else most
    slots = torch.arange(len(rows.owners), device=rows.owners.device) - _bounds(rows.owners, count)[rows.owners]

    def table(values: Tensor) -> Tensor:
        padded = values.new_zeros((count, width, *values.shape[1:]))
        padded[rows.owners, slots] = values
        return padded

    return replace(rows, **{name: table(value) for name, value in vars(rows).items()})


def by_owners(uses: Uses, count: int, numbers_each: int) -> Iterator[tuple[int, Uses]]:
    """Cut rows into groups of neighbouring owners, counted from 0 in each, so that not too much is held at once."""
    step = max(1, _MOST_NUMBERS // numbers_each)
    if count <= step:
        yield count, uses  # where they begin and end is known without asking the device
        return
    for first in range(0, count, step):
        size = min(step, count - first)
        yield size, tuple(_owned(rows, first, size) for rows in uses)


def _owned(rows: Rows, first: int, size: int) -> Rows:
    bounds = torch.tensor([first, first + size], device=rows.owners.device)
    start, end = torch.searchsorted(rows.owners, bounds).tolist()
    part = rows.part(slice(start, end))
    return replace(part, owners=part.owners - first)


@dataclass(frozen=True)
class _Alike:
    """Tokens that about as many rows ask for: with the rows as a table, all their products are one batched matmul."""

    tokens: Tensor  # (T,) int64, places among the distinct tokens
    rows: Tensor  # (T, most) int64, the rows that ask for each, filled up with row 0


class LookupProducts:
    """Stored rows of looked-up vectors by their tokens, so that each line of a candidate's matrix is read once."""

    def __init__(self, stored: Rows, layer: str) -> None:
        self.stored = stored
        self._distinct, of_each, counts = torch.unique(tokens_of(stored), return_inverse=True, return_counts=True)
        self._block = Block(layer, len(self._distinct), stored.right.shape[1])
        self._alike, self._places = _rows_by_token(of_each, counts)
        self._most = max(self._block.size, sum(one.rows.numel() for one in self._alike))

    def products(self, uses: Uses, count: int) -> Tensor:
        """Candidates against every single row: (count, R)."""
        if not len(self.stored.owners):
            return uses[0].right.new_zeros((count, 0))
        few = tuple(_at(rows, self._distinct) for rows in uses)
        parts = by_owners(few, count, self._most)
        return torch.cat([self._of(matrices(part, size, self._block)) for size, part in parts])

    def _of(self, candidates: Tensor) -> Tensor:
        """(C, distinct, width) -> (C, R)"""
        right, found = self.stored.right, []  # (R, width)
        for one in self._alike:
            lines = candidates[:, one.tokens].transpose(0, 1)  # (T, C, width)
            found.append((lines @ right[one.rows].mT).transpose(0, 1).flatten(1))  # (T, C, most) -> (C, T * most)
        return torch.cat(found, dim=1)[:, self._places]


def _rows_by_token(of_each: Tensor, counts: Tensor) -> tuple[list[_Alike], Tensor]:
    """Rows by token, tokens by how many rows they have, in powers of two; and where each row then stands: (R,)."""
    order = torch.argsort(of_each, stable=True)
    starts = counts.cumsum(0) - counts
    slots = torch.empty_like(of_each)
    slots[order] = torch.arange(len(order), device=order.device) - starts[of_each[order]]
    rooms = torch.ceil(torch.log2(counts.double())).long()  # a token with 5 rows has room for 2 ** 3
    places, alike, before = torch.empty_like(of_each), [], 0
    for room in torch.unique(rooms).tolist():
        tokens = torch.nonzero(rooms == room).squeeze(1)
        rows = torch.nonzero(rooms[of_each] == room).squeeze(1)
        lines = torch.searchsorted(tokens, of_each[rows])
        table = rows.new_zeros((len(tokens), 2**room))
        table[lines, slots[rows]] = rows
        places[rows] = before + lines * 2**room + slots[rows]
        alike.append(_Alike(tokens, table))
        before += table.numel()
    return alike, places


def _at(rows: Rows, distinct: Tensor) -> Rows:
    """The rows as if the vocabulary were these tokens alone."""
    if isinstance(rows, LinearRows):
        return replace(rows, left=rows.left[:, distinct])
    assert isinstance(rows, LookupRows)
    places = torch.searchsorted(distinct, rows.tokens).clamp(max=len(distinct) - 1)
    # What nobody asks for adds zeros to some line: dropping it would make the host wait for the device.
    asked = (distinct[places] == rows.tokens).to(rows.right.dtype)
    return replace(rows, tokens=places, right=rows.right * asked[:, None])
