"""The gradients of targets, stored as rows or as matrices, and their products with candidates.

A plan selects from samples how the gradients of each weight are stored; docs/concepts/gradients.md has the costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.gradients.arithmetic import (
    LookupProducts,
    by_owners,
    matrices,
    pair_products,
    squared_norms,
    sums_by_owner,
)
from endtask.gradients.rows import Block, Gradients, LinearRows, LookupRows, Rows, Units, Uses, by_kind

Measure = Literal["dot", "cosine"]
_MOST_PAIRS = 1 << 24  # in memory at a time


class Targets:
    """Units of targets that score candidates; batches of targets are added in any order."""

    def __init__(self, plan: Plan, units: Units) -> None:
        self.plan, self.units = plan, units
        self._stored = {block: _empty(block_plan, units.count) for block, block_plan in plan.blocks.items()}
        self._added = np.zeros(len(units.numbers), dtype=bool)
        self._inverse: Tensor | None = None  # 1 / norm of every unit's gradient

    def add(self, gradients: Gradients, texts: NDArray[np.int64] | None = None) -> None:
        """Add the gradients of some targets, each once; `texts` are their indices, by default from 0."""
        texts = np.arange(gradients.count) if texts is None else texts
        self._check_indices(texts)
        merged, numbers = self.units.merge(gradients, texts)
        for block, stored in self._stored.items():
            uses = merged.blocks[block]
            stored.add(uses, torch.from_numpy(numbers).to(uses[0].owners.device))
        self._added[texts] = True
        self._inverse = None

    def scores(self, candidates: Gradients, measure: Measure = "dot") -> Tensor:
        """Return the score of every candidate against every unit, over all chosen layers: (candidates, units).

        The inner product is the decrease of the unit's loss per unit of learning rate, after a gradient step on the
        candidate; the cosine is the product divided by both norms, 0 for a gradient of zero.
        """
        missing = np.flatnonzero(~self._added)
        if len(missing):
            raise ValueError(f"{len(missing)} of {len(self._added)} targets were not added, such as {missing[0]}")
        if not candidates.count:
            return _zeros_like(candidates, 0, self.units.count)
        products = [
            stored.products(candidates.blocks[block], candidates.count) for block, stored in self._stored.items()
        ]
        total = torch.stack(products).sum(0)
        return total if measure == "dot" else total * self._inverse_lengths(candidates)

    @property
    def bytes_per_target(self) -> float:
        """The bytes per target, over all layers."""
        return sum(stored.bytes for stored in self._stored.values()) / max(1, len(self.units.numbers))

    def _check_indices(self, texts: NDArray[np.int64]) -> None:
        if len(texts) and not 0 <= texts.min() <= texts.max() < len(self._added):
            raise ValueError(f"indices {texts.min()} to {texts.max()}, but there are {len(self._added)} targets")
        repeated = texts[self._added[texts]]
        if len(repeated):
            raise ValueError(f"target {repeated[0]} was added before; give the indices of every later batch as `texts`")
        if len(np.unique(texts)) < len(texts):
            raise ValueError("a target is named twice in `texts`")

    def _inverse_lengths(self, candidates: Gradients) -> Tensor:
        """Return 1 / (norm of the candidate x norm of the unit): (candidates, units)."""
        if self._inverse is None:
            self._inverse = _inverse_norms([stored.squared_norms() for stored in self._stored.values()])
        squares = [
            squared_norms(candidates.blocks[block], candidates.count, block, candidates.most_rows)
            for block in self._stored
        ]
        return _inverse_norms(squares)[:, None] * self._inverse


def products(
    candidates: Gradients, targets: Gradients, measure: Measure = "dot", options: Options | None = None
) -> Tensor:
    """Return all products of two sets of gradients: (candidates, targets).

    >>> from endtask.gradients.rows import LinearRows
    >>> rows = LinearRows(left=torch.ones(2, 1), right=torch.tensor([[3.0], [-5.0]]), owners=torch.tensor([0, 1]))
    >>> gradients = Gradients(2, {Block("W", 1, 1): (rows,)})
    >>> products(gradients, gradients).tolist()
    [[9.0, -15.0], [-15.0, 25.0]]
    >>> products(gradients, gradients, "cosine").round(decimals=4).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    if not targets.count:
        return _zeros_like(candidates, candidates.count, 0)
    workload = Workload(max(1, candidates.count), targets.count, targets.count)
    stored = Targets(make_plan(candidates, targets, workload, options), Units.single(targets.count))
    stored.add(targets)
    return stored.scores(candidates, measure)


class _StoredRows:
    """The gradients of all units of targets for one block, as rows.

    A product is a sum over pairs of a candidate's and a target's rows.
    """

    def __init__(self, block: Block, units: int) -> None:
        self._block, self._units = block, units
        self._parts: list[Uses] = []
        self._lookups: LookupProducts | None = None

    def add(self, uses: Uses, units: Tensor) -> None:
        """Add rows to units, of owner i to unit `units[i]`; a unit's gradient is the sum of its rows."""
        self._parts.append(tuple(replace(rows, owners=units[rows.owners]) for rows in uses))

    def products(self, uses: Uses, count: int) -> Tensor:
        """Return inner products with the gradients of `count` candidates: (count, units)."""
        total = uses[0].right.new_zeros((count, self._units))
        for rows in self._concatenated():
            multiply = self._lookup_products if isinstance(rows, LookupRows) else _row_products
            by_row = multiply(uses, count, rows)  # (count, R')
            total += sums_by_owner(by_row.T.contiguous(), rows.owners, self._units).T
        return total

    def _lookup_products(self, uses: Uses, count: int, rows: Rows) -> Tensor:
        """Return products with every row; the targets' tokens need few rows of a candidate's matrix: (count, R')."""
        if self._lookups is None or self._lookups.stored is not rows:
            self._lookups = LookupProducts(rows, self._block.layer)
        return self._lookups.products(uses, count)

    def squared_norms(self) -> Tensor:
        """Return the squared norm of every unit's gradient: (units,)."""
        return squared_norms(self._concatenated(), self._units, self._block)

    @property
    def bytes(self) -> int:
        return sum(rows.bytes for uses in self._parts for rows in uses)

    def _concatenated(self) -> Uses:
        """Return all rows; concatenates them at the first call."""
        if len(self._parts) > 1:
            self._parts = [by_kind([rows for uses in self._parts for rows in uses])]
        return self._parts[0]


class _StoredMatrices:
    """The gradients of all units of targets for one block, as matrices; candidates become matrices too."""

    def __init__(self, block: Block, units: int) -> None:
        self._block, self._units = block, units
        self._matrices: Tensor | None = None  # (units, height, width)

    def add(self, uses: Uses, units: Tensor) -> None:
        if self._matrices is None:
            self._matrices = uses[0].right.new_zeros((self._units, self._block.height, self._block.width))
        start = 0
        for size, part in by_owners(uses, len(units), self._block.size):
            self._matrices[units[start : start + size]] += matrices(part, size, self._block)
            start += size

    def products(self, uses: Uses, count: int) -> Tensor:
        assert self._matrices is not None
        flat = self._matrices.flatten(1).T  # (height * width, units)
        parts = by_owners(uses, count, self._block.size)
        return torch.cat([matrices(part, size, self._block).flatten(1) @ flat for size, part in parts])

    def squared_norms(self) -> Tensor:
        assert self._matrices is not None
        return torch.stack([matrix.square().sum() for matrix in self._matrices])

    @property
    def bytes(self) -> int:
        return 0 if self._matrices is None else self._matrices.nbytes


def _row_products(uses: Uses, count: int, targets: Rows) -> Tensor:
    """Return products with every target row from pairs of rows, some columns at a time: (count, R')."""
    step = max(1, _MOST_PAIRS // max(1, *(len(rows.owners) for rows in uses)))
    columns = []
    for first in range(0, max(1, len(targets.owners)), step):
        part = targets.part(slice(first, first + step))
        products = [sums_by_owner(pair_products(rows, part), rows.owners, count) for rows in uses]
        columns.append(torch.stack(products).sum(0))
    return torch.cat(columns, dim=1)


def _empty(plan: BlockPlan, units: int) -> _StoredRows | _StoredMatrices:
    return _StoredRows(plan.block, units) if plan.strategy == "pairs" else _StoredMatrices(plan.block, units)


def _zeros_like(like: Gradients, height: int, width: int) -> Tensor:
    return next(iter(like.blocks.values()))[0].right.new_zeros((height, width))


def _inverse_norms(squares: list[Tensor]) -> Tensor:
    total = torch.stack(squares).sum(0).clamp(min=0)  # rounding may make a zero negative
    return torch.where(total > 0, total.rsqrt(), 0)


Strategy = Literal["pairs", "matrix"]
"""`pairs` stores targets as rows and multiplies pairs of rows; `matrix` stores and multiplies matrices."""
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True)
class Options:
    """Options of a plan; by default each block takes the cheaper strategy.

    `strategy` forces a strategy. `memory` is the limit in bytes for all targets, in equal shares per block (None: no
    limit); if both strategies exceed it, the plan takes the smaller.
    """

    strategy: Strategy | None = None
    memory: int | None = 4 << 30

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The strategies to choose from."""
        return STRATEGIES if self.strategy is None else (self.strategy,)


@dataclass(frozen=True)
class Workload:
    """The number of candidates (or units of them), of targets, and of units of targets."""

    candidates: int
    targets: int
    units: int


@dataclass(frozen=True)
class RowCounts:
    """The mean number of rows of one kind per text."""

    rows: float
    left: int
    """Numbers in the left factor of a row; a token counts as 1."""
    lookup: bool = False


@dataclass(frozen=True)
class BlockCosts:
    """The costs of one block, from the rows of candidates and targets."""

    block: Block
    candidate: tuple[RowCounts, ...]
    target: tuple[RowCounts, ...]
    workload: Workload

    def multiply_adds(self, strategy: Strategy) -> float:
        """Return the multiply-adds of a candidate with all units, including its share of preparing the targets.

        >>> workload = Workload(10**6, 4000, 4000)
        >>> costs = BlockCosts(Block("W", 768, 768), (RowCounts(19, 768),), (RowCounts(1, 768),), workload)
        >>> [f"{costs.multiply_adds(strategy):.1e}" for strategy in ("pairs", "matrix")]
        ['1.2e+08', '2.4e+09']
        """
        if strategy == "pairs":
            return self._pairs()
        share = self.workload.targets / self.workload.candidates
        return self._build(self.candidate) + self.workload.units * self.block.size + share * self._build(self.target)

    def bytes_per_target(self, strategy: Strategy, item: int) -> float:
        """Return the bytes of a target, with `item` bytes per number."""
        if strategy == "pairs":
            return item * sum(counts.rows * (counts.left + self.block.width) for counts in self.target)
        return item * self.workload.units / self.workload.targets * self.block.size

    def _pairs(self) -> float:
        """Return the cost of pairs of rows; for stored tokens, that of the candidate's matrix and a row per token."""
        width, targets, total = self.block.width, self.workload.targets, 0.0
        for rows in self.target:
            if rows.lookup:
                total += self.block.size + self._build(self.candidate) + targets * rows.rows * width
            else:
                total += sum(targets * counts.rows * rows.rows * (counts.left + width) for counts in self.candidate)
        return total

    def _build(self, counted: tuple[RowCounts, ...]) -> float:
        return sum(counts.rows * counts.left * self.block.width for counts in counted)


@dataclass(frozen=True)
class BlockPlan:
    """The strategy of a block, and the expected costs of all strategies to choose from."""

    block: Block
    strategy: Strategy
    rows_per_candidate: float
    rows_per_target: float
    multiply_adds: dict[Strategy, float]
    """Per candidate with all units, including its share of preparing the targets."""
    bytes_per_target: dict[Strategy, float]


@dataclass(frozen=True)
class Plan:
    """The strategies of all blocks."""

    options: Options
    blocks: dict[Block, BlockPlan]

    @property
    def multiply_adds(self) -> float:
        """Expected multiply-adds of a candidate with all units."""
        return sum(plan.multiply_adds[plan.strategy] for plan in self.blocks.values())

    @property
    def bytes_per_target(self) -> float:
        """Expected bytes per target."""
        return sum(plan.bytes_per_target[plan.strategy] for plan in self.blocks.values())

    def record(self) -> list[dict[str, Any]]:
        """Return a plain dictionary per block, for a manifest."""
        return [
            {
                "layer": str(plan.block),
                "strategy": plan.strategy,
                "rows_per_candidate": plan.rows_per_candidate,
                "rows_per_target": plan.rows_per_target,
                "multiply_adds": plan.multiply_adds[plan.strategy],
                "bytes_per_target": plan.bytes_per_target[plan.strategy],
            }
            for plan in self.blocks.values()
        ]


def make_plan(candidates: Gradients, targets: Gradients, workload: Workload, options: Options | None = None) -> Plan:
    """Return the cheaper strategy within the memory limit for every block, by sampled candidates and targets.

    Sampled candidates are units or means over several masks, as in scoring; sampled targets are single texts.

    >>> import torch
    >>> row = LinearRows(left=torch.zeros(1, 64), right=torch.zeros(1, 64), owners=torch.tensor([0]))
    >>> sample = Gradients(1, {Block("layers.1.attn.Wo", 64, 64): (row,)})
    >>> plan = make_plan(sample, sample, Workload(candidates=1000, targets=100, units=100))
    >>> [(line["layer"], line["strategy"], line["bytes_per_target"]) for line in plan.record()]
    [('layers.1.attn.Wo', 'pairs', 512.0)]
    """
    options = options or Options()
    share = None if options.memory is None else options.memory / len(targets.blocks) / workload.targets
    plans = {}
    for block, uses in targets.blocks.items():
        costs = BlockCosts(block, count_rows(candidates, block), count_rows(targets, block), workload)
        plans[block] = _block_plan(costs, options.strategies, share, uses[0].right.element_size())
    return Plan(options, plans)


def count_rows(gradients: Gradients, block: Block) -> tuple[RowCounts, ...]:
    """Return the mean numbers of rows per text for a block."""
    counts = []
    for rows in gradients.blocks[block]:
        mean = len(rows.owners) / max(1, gradients.count)
        is_linear = isinstance(rows, LinearRows)
        counts.append(RowCounts(mean, block.height if is_linear else 1, lookup=not is_linear))
    return tuple(counts)


def _block_plan(costs: BlockCosts, strategies: tuple[Strategy, ...], most_bytes: float | None, item: int) -> BlockPlan:
    times = {strategy: costs.multiply_adds(strategy) for strategy in strategies}
    sizes = {strategy: costs.bytes_per_target(strategy, item) for strategy in strategies}
    fitting = [strategy for strategy in strategies if most_bytes is None or sizes[strategy] <= most_bytes]
    ranking = times if fitting else sizes
    return BlockPlan(
        costs.block,
        min(fitting or strategies, key=lambda strategy: ranking[strategy]),
        sum(counts.rows for counts in costs.candidate),
        sum(counts.rows for counts in costs.target),
        times,
        sizes,
    )
