"""The forms in which the gradients of targets are kept, one block at a time: rows, matrices or sketches."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from endtask.gradients.arithmetic import (
    by_owners,
    matrices,
    most_rows,
    pair_products,
    squared_norms,
    sums_by_owner,
    tokens_of,
)
from endtask.gradients.lookups import LookupProducts
from endtask.gradients.low_rank import truncate
from endtask.gradients.projection import Projection, Sketcher
from endtask.gradients.rows import Block, LinearRows, LookupRows, Rows, Uses, by_kind

_MOST_PAIRS = 1 << 24  # held at once


class Kept(Protocol):
    """The gradients of all units of targets for one block."""

    def add(self, uses: Uses, units: Tensor) -> None:
        """Add rows whose owner i is unit `units[i]`; a unit's gradient is the sum of all that was added to it."""
        ...

    def products(self, uses: Uses, count: int) -> Tensor:
        """Inner products with the gradients of `count` candidates: (count, units)."""
        ...

    def squared_norms(self) -> Tensor:
        """Of every unit's gradient: (units,)."""
        ...

    def squared_norms_of(self, uses: Uses, count: int, most: int | None) -> Tensor:
        """Of candidates' gradients, as they enter the products: (count,); one has at most so many rows, if known."""
        ...

    @property
    def bytes(self) -> int:
        """What is held in memory."""
        ...


class KeptRows:
    """As rows: a product is a sum over pairs of a candidate's and a target's rows."""

    def __init__(self, block: Block, units: int, dtype: torch.dtype | None = None) -> None:
        self._block, self._units, self._dtype = block, units, dtype
        self._parts: list[Uses] = []
        self._lookups: LookupProducts | None = None

    def add(self, uses: Uses, units: Tensor) -> None:
        own = (rows.to(self._dtype or rows.right.dtype) for rows in uses)
        self._parts.append(tuple(replace(rows, owners=units[rows.owners]) for rows in own))

    def products(self, uses: Uses, count: int) -> Tensor:
        total = uses[0].right.new_zeros((count, self._units))
        for kept in self._whole():
            work = self._by_lookup if isinstance(kept, LookupRows) else self._by_pair
            by_row = work(uses, count, kept)  # (count, R')
            total += sums_by_owner(by_row.T.contiguous(), kept.owners, self._units).T
        return total

    def _by_lookup(self, uses: Uses, count: int, kept: Rows) -> Tensor:
        """Products with every single row: the candidate's matrix has few places that a target's tokens ask for."""
        if self._lookups is None or self._lookups.kept is not kept:
            self._lookups = LookupProducts(kept, self._block.layer)
        return self._lookups.products(uses, count)

    def _by_pair(self, uses: Uses, count: int, kept: Rows) -> Tensor:
        """The same from pairs of rows, some columns at a time."""
        step = max(1, _MOST_PAIRS // max(1, *(len(rows.owners) for rows in uses)))
        columns = []
        for first in range(0, max(1, len(kept.owners)), step):
            part = kept.part(slice(first, first + step)).to(uses[0].right.dtype)
            pieces = [sums_by_owner(pair_products(rows, part), rows.owners, count) for rows in uses]
            columns.append(torch.stack(pieces).sum(0))
        return torch.cat(columns, dim=1)

    def squared_norms(self) -> Tensor:
        return squared_norms(_wide(self._whole()), self._units, self._block)

    def squared_norms_of(self, uses: Uses, count: int, most: int | None) -> Tensor:
        return squared_norms(uses, count, self._block, most)

    @property
    def bytes(self) -> int:
        return sum(rows.bytes for uses in self._parts for rows in uses)

    def _whole(self) -> Uses:
        """All rows, put together at the first reading."""
        if len(self._parts) > 1:
            self._parts = [by_kind([rows for uses in self._parts for rows in uses])]
        return self._parts[0]


class KeptFewRows(KeptRows):
    """As the few rows that come closest to each unit's gradient; an approximation whose quality is on record."""

    def __init__(self, block: Block, units: int, rank: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(block, units, dtype)
        self._rank = rank
        self._shares: Tensor | None = None  # (units,)

    def add(self, uses: Uses, units: Tensor) -> None:
        few, shares = self._truncated(uses, len(units))
        if self._shares is None:
            self._shares = shares.new_ones(self._units)
        self._shares[units] = torch.minimum(self._shares[units], shares)
        super().add(few, units)

    @property
    def shares(self) -> Tensor:
        """What share of every unit's squared norm is held: the lowest of what was added, times the whole's: (units,)"""
        if self._shares is None:
            return torch.ones(self._units)
        self._whole()
        return self._shares

    def _whole(self) -> Uses:
        """All rows; a unit that was added to several times is truncated again."""
        whole = super()._whole()
        if any(most_rows((rows,)) > self._rank for rows in whole if isinstance(rows, LinearRows)):
            few, shares = self._truncated(_wide(whole), self._units)
            assert self._shares is not None
            self._shares = self._shares * shares
            self._parts = [tuple(rows.to(whole[0].right.dtype) for rows in few)]
        return self._parts[0]

    def _truncated(self, uses: Uses, count: int) -> tuple[Uses, Tensor]:
        """At most so many rows for each of `count` owners, and the lowest share of a squared norm held: (count,)."""
        few: list[Rows] = []
        lowest = torch.ones(count, dtype=torch.float64, device=uses[0].owners.device)
        for rows in uses:
            if isinstance(rows, LinearRows):
                rows, shares = truncate(rows, count, self._rank)
                lowest = torch.minimum(lowest, shares.to(lowest.dtype))
            few.append(rows)
        return tuple(few), lowest


class KeptMatrices:
    """As whole matrices; a candidate's gradient becomes one too, unless `bilinear`: then it stays rows, l^T M r."""

    def __init__(self, block: Block, units: int, *, bilinear: bool) -> None:
        self._block, self._units, self._bilinear = block, units, bilinear
        self._matrices: Tensor | None = None  # (units, height, width)

    def add(self, uses: Uses, units: Tensor) -> None:
        if self._matrices is None:
            self._matrices = uses[0].right.new_zeros((self._units, self._block.height, self._block.width))
        done = 0
        for size, part in by_owners(uses, len(units), self._block.size):
            self._matrices[units[done : done + size]] += matrices(part, size, self._block)
            done += size

    def products(self, uses: Uses, count: int) -> Tensor:
        kept = self._all()
        if self._bilinear:
            return torch.stack([_through(uses, count, matrix) for matrix in kept], dim=1)
        flat = kept.flatten(1).T  # (height * width, units)
        parts = by_owners(uses, count, self._block.size)
        return torch.cat([matrices(part, size, self._block).flatten(1) @ flat for size, part in parts])

    def squared_norms(self) -> Tensor:
        return torch.stack([matrix.square().sum() for matrix in self._all()])

    def squared_norms_of(self, uses: Uses, count: int, most: int | None) -> Tensor:
        return squared_norms(uses, count, self._block, most)

    @property
    def bytes(self) -> int:
        return 0 if self._matrices is None else self._matrices.nbytes

    def _all(self) -> Tensor:
        assert self._matrices is not None
        return self._matrices


class KeptSketches:
    """As random projections, which are not exact and never chosen unless asked for."""

    def __init__(self, block: Block, units: int, projection: Projection) -> None:
        self._block, self._units, self._projection = block, units, projection
        self._sketcher: Sketcher | None = None
        self._sketches: Tensor | None = None  # (units, size)

    def add(self, uses: Uses, units: Tensor) -> None:
        if self._sketches is None:
            self._sketcher = Sketcher(self._projection, self._block, uses[0].right)
            self._sketches = uses[0].right.new_zeros((self._units, self._projection.size))
        self._sketches[units] += self._sketch(uses, len(units))

    def products(self, uses: Uses, count: int) -> Tensor:
        return self._sketch(uses, count) @ self._all().T

    def squared_norms(self) -> Tensor:
        return self._all().square().sum(1)

    def squared_norms_of(self, uses: Uses, count: int, most: int | None) -> Tensor:
        return self._sketch(uses, count).square().sum(1)

    @property
    def bytes(self) -> int:
        return 0 if self._sketches is None else self._sketches.nbytes

    def _all(self) -> Tensor:
        assert self._sketches is not None
        return self._sketches

    def _sketch(self, uses: Uses, count: int) -> Tensor:
        assert self._sketcher is not None
        return self._sketcher.sketches(uses, count)


def _wide(uses: Uses) -> Uses:
    return tuple(rows.to(torch.promote_types(rows.right.dtype, torch.float32)) for rows in uses)


def _through(uses: Uses, count: int, matrix: Tensor) -> Tensor:
    """Sums of l^T M r over each owner's rows: (height, width) -> (count,)."""
    total = matrix.new_zeros((count, 1))
    for rows in uses:
        if isinstance(rows, LinearRows):
            each = (rows.right @ matrix.T) * rows.left  # (R, height)
        else:
            each = matrix[tokens_of(rows)] * rows.right
        total += sums_by_owner(each.sum(1, keepdim=True), rows.owners, count)
    return total.squeeze(1)
