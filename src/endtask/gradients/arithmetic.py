"""Products, sums and norms of gradients that are stored as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat

import torch
from torch import Tensor

from endtask.gradients.rows import AnyRows, Block, LinearRows, LookupRows, Rows, Uses

_MOST_NUMBERS = 1 << 26  # in memory at a time


def pair_products(first: Rows, second: Rows) -> Tensor:
    """Return the inner products of all pairs of rows: (..., R) and (..., R') -> (..., R, R').

    <l r^T, l' r'^T> = (l . l') (r . r'), so no matrix is built. Rows may be tables with an entry per owner.

    >>> owners = torch.tensor([0])
    >>> rows = LinearRows(left=torch.tensor([[1.0, 2.0]]), right=torch.tensor([[3.0]]), owners=owners)
    >>> pair_products(rows, LookupRows(tokens=torch.tensor([1]), right=torch.tensor([[5.0]]), owners=owners)).tolist()
    [[30.0]]
    """
    return _left_products(first, second) * (first.right @ second.right.mT)


def _left_products(first: Rows, second: Rows) -> Tensor:
    if isinstance(first, LinearRows) and isinstance(second, LinearRows):
        return first.left @ second.left.mT
    if isinstance(first, LinearRows):
        return _at_tokens(first.left, tokens_of(second))
    if isinstance(second, LinearRows):
        return _at_tokens(second.left, tokens_of(first)).mT
    return (tokens_of(first)[..., :, None] == tokens_of(second)[..., None, :]).to(first.right.dtype)


def tokens_of(rows: Rows) -> Tensor:
    """Return the tokens of rows of looked-up vectors: (R,)."""
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
    """Return the offsets of each owner's rows: (R,), sorted -> (count + 1,)."""
    # bincount would synchronize the device to find the number of owners.
    return torch.searchsorted(owners, torch.arange(count + 1, device=owners.device))


def matrices(uses: Uses, count: int, block: Block, most: int | None = None) -> Tensor:
    """Return the gradients as matrices: rows -> (count, height, width)."""
    total = uses[0].right.new_zeros((count, block.height, block.width))
    for rows in uses:
        if isinstance(rows, LinearRows):
            padded = tables(rows, count, most)
            total += padded.left.mT @ padded.right
        else:
            _add_lookups(total, rows)
    return total


def _add_lookups(total: Tensor, rows: Rows) -> None:
    """Add looked-up rows to matrices inplace: (count, height, width), in a fixed order, unlike index_put_."""
    indices, inverse = torch.unique(rows.owners * total.shape[1] + tokens_of(rows), return_inverse=True)
    order = torch.argsort(inverse, stable=True)
    total.view(-1, total.shape[2])[indices] += sums_by_owner(rows.right[order], inverse[order], len(indices))


def squared_norms(uses: Uses, count: int, block: Block, most: int | None = None) -> Tensor:
    """Return the squared norm of every owner's gradient, from pairs of its rows or from its matrix: (count,).

    `most` is the largest number of rows of one kind per owner; without it the device is synchronized.
    """
    widths = [most_rows((rows,)) if most is None else most for rows in uses]
    linear = all(isinstance(rows, LinearRows) for rows in uses)
    if linear and max(widths) * (block.height + block.width) > block.size:
        parts = by_owners(uses, count, block.size)
        return torch.cat([matrices(part, size, block, most).square().sum((1, 2)) for size, part in parts])
    # Each kind is padded to its own maximum, since only the rows of predicted tokens are as long as the vocabulary.
    lefts = [block.height if isinstance(rows, LinearRows) else 1 for rows in uses]
    numbers = sum(width * (left + block.width + width) for left, width in zip(lefts, widths, strict=True))
    parts = by_owners(uses, count, max(1, numbers))
    return torch.cat([_own_pairs(list(map(tables, part, repeat(size), widths))) for size, part in parts])


def _own_pairs(padded: list[Rows]) -> Tensor:
    return torch.stack([pair_products(first, second).sum((1, 2)) for first in padded for second in padded]).sum(0)


def most_rows(uses: Uses) -> int:
    """Return the largest number of rows of one kind per owner."""
    return max(int(torch.bincount(rows.owners, minlength=1).max()) for rows in uses)


def tables(rows: AnyRows, count: int, most: int | None = None) -> AnyRows:
    """Return rows as padded tables, one entry per owner: (R, ...) -> (count, most, ...); padded with zeros."""
    width = most_rows((rows,)) if most is None else most
    slots = torch.arange(len(rows.owners), device=rows.owners.device) - _bounds(rows.owners, count)[rows.owners]

    def table(values: Tensor) -> Tensor:
        padded = values.new_zeros((count, width, *values.shape[1:]))
        padded[rows.owners, slots] = values
        return padded

    return replace(rows, **{name: table(value) for name, value in vars(rows).items()})


def by_owners(uses: Uses, count: int, numbers_each: int) -> Iterator[tuple[int, Uses]]:
    """Yield rows in groups of neighbouring owners, numbered from 0 in each, to limit memory."""
    step = max(1, _MOST_NUMBERS // numbers_each)
    if count <= step:
        yield count, uses  # without synchronization
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
class _TokenGroup:
    """Tokens with a similar number of rows: with the rows as a table, all products are one batched matmul."""

    tokens: Tensor  # (T,) int64, indices among the distinct tokens
    rows: Tensor  # (T, most) int64, the rows of each token, padded with row 0


class LookupProducts:
    """Stored rows of looked-up vectors, grouped by token to read each row of a candidate's matrix once."""

    def __init__(self, stored: Rows, layer: str) -> None:
        self.stored = stored
        self._distinct, inverse, counts = torch.unique(tokens_of(stored), return_inverse=True, return_counts=True)
        self._block = Block(layer, len(self._distinct), stored.right.shape[1])
        self._groups, self._indices = _rows_by_token(inverse, counts)
        self._most = max(self._block.size, sum(group.rows.numel() for group in self._groups))

    def products(self, uses: Uses, count: int) -> Tensor:
        """Return the products of candidates with every single row: (count, R)."""
        if not len(self.stored.owners):
            return uses[0].right.new_zeros((count, 0))
        reduced = tuple(_reduce_vocabulary(rows, self._distinct) for rows in uses)
        parts = by_owners(reduced, count, self._most)
        return torch.cat([self._products(matrices(part, size, self._block)) for size, part in parts])

    def _products(self, candidates: Tensor) -> Tensor:
        """(C, distinct, width) -> (C, R)"""
        right, products = self.stored.right, []  # (R, width)
        for group in self._groups:
            vectors = candidates[:, group.tokens].transpose(0, 1)  # (T, C, width)
            products.append(
                (vectors @ right[group.rows].mT).transpose(0, 1).flatten(1)
            )  # (T, C, most) -> (C, T * most)
        return torch.cat(products, dim=1)[:, self._indices]


def _rows_by_token(row_tokens: Tensor, counts: Tensor) -> tuple[list[_TokenGroup], Tensor]:
    """Group rows by token, and tokens by their number of rows in powers of two.

    `row_tokens` has the token of each row, as an index among the distinct tokens. Return the groups, and each row's
    index in the concatenated groups: (R,).
    """
    order = torch.argsort(row_tokens, stable=True)
    starts = counts.cumsum(0) - counts
    slots = torch.empty_like(row_tokens)
    slots[order] = torch.arange(len(order), device=order.device) - starts[row_tokens[order]]
    exponents = torch.ceil(torch.log2(counts.double())).long()  # a token with 5 rows is padded to 2 ** 3
    indices, groups, offset = torch.empty_like(row_tokens), [], 0
    for exponent in torch.unique(exponents).tolist():
        tokens = torch.nonzero(exponents == exponent).squeeze(1)
        rows = torch.nonzero(exponents[row_tokens] == exponent).squeeze(1)
        in_group = torch.searchsorted(tokens, row_tokens[rows])
        table = rows.new_zeros((len(tokens), 2**exponent))
        table[in_group, slots[rows]] = rows
        indices[rows] = offset + in_group * 2**exponent + slots[rows]
        groups.append(_TokenGroup(tokens, table))
        offset += table.numel()
    return groups, indices


def _reduce_vocabulary(rows: Rows, distinct: Tensor) -> Rows:
    """Return the rows for a vocabulary of the distinct tokens only."""
    if isinstance(rows, LinearRows):
        return replace(rows, left=rows.left[:, distinct])
    assert isinstance(rows, LookupRows)
    indices = torch.searchsorted(distinct, rows.tokens).clamp(max=len(distinct) - 1)
    # Other tokens add zeros to a row, since dropping them would synchronize the device.
    is_known = (distinct[indices] == rows.tokens).to(rows.right.dtype)
    return replace(rows, tokens=indices, right=rows.right * is_known[:, None])
