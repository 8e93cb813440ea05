"""The identities: products, sums and norms of gradients given as rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
