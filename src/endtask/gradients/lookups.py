"""Products with rows of looked-up vectors: many rows ask for the same few lines of a candidate's matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from endtask.gradients.arithmetic import by_owners, matrices, tokens_of
from endtask.gradients.rows import Block, LinearRows, LookupRows, Rows, Uses


@dataclass(frozen=True)
class Alike:
    """Tokens that about as many rows ask for: with the rows as a table, all their products are one batched matmul."""

    tokens: Tensor  # (T,) int64, places among the distinct tokens
    rows: Tensor  # (T, most) int64, the rows that ask for each, filled up with row 0


class LookupProducts:
    """Kept rows of looked-up vectors by their tokens, so that each line of a candidate's matrix is read once."""

    def __init__(self, kept: Rows, layer: str) -> None:
        self.kept = kept
        self._distinct, of_each, counts = torch.unique(tokens_of(kept), return_inverse=True, return_counts=True)
        self._block = Block(layer, len(self._distinct), kept.right.shape[1])
        self._alike, self._places = _tables(of_each, counts)
        self._most = max(self._block.size, sum(one.rows.numel() for one in self._alike))

    def products(self, uses: Uses, count: int) -> Tensor:
        """Candidates against every single row: (count, R)."""
        if not len(self.kept.owners):
            return uses[0].right.new_zeros((count, 0))
        few = tuple(_at(rows, self._distinct) for rows in uses)
        right = self.kept.right.to(uses[0].right.dtype)
        parts = by_owners(few, count, self._most)
        return torch.cat([self._of(matrices(part, size, self._block), right) for size, part in parts])

    def _of(self, candidates: Tensor, right: Tensor) -> Tensor:
        """(C, distinct, width) and (R, width) -> (C, R)"""
        found = []
        for one in self._alike:
            lines = candidates[:, one.tokens].transpose(0, 1)  # (T, C, width)
            found.append((lines @ right[one.rows].mT).transpose(0, 1).flatten(1))  # (T, C, most) -> (C, T * most)
        return torch.cat(found, dim=1)[:, self._places]


def _tables(of_each: Tensor, counts: Tensor) -> tuple[list[Alike], Tensor]:
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
        alike.append(Alike(tokens, table))
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
