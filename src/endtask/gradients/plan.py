"""Which way each block's products go, chosen by cost from samples, and on record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endtask.gradients.costs import BlockCosts, Work, count_rows
from endtask.gradients.options import Options, Way
from endtask.gradients.rows import Block, Gradients


@dataclass(frozen=True)
class BlockPlan:
    """The way that one block's products go, and what was expected of all ways that competed."""

    block: Block
    way: Way
    rows_per_candidate: float
    rows_per_target: float
    multiply_adds: dict[Way, float]
    """For one candidate against all units, with its share of making the targets ready."""
    bytes_per_target: dict[Way, float]


@dataclass(frozen=True)
class Plan:
    """The ways of all blocks."""

    options: Options
    blocks: dict[Block, BlockPlan]

    @property
    def multiply_adds(self) -> float:
        """Expected for one candidate against all units."""
        return sum(plan.multiply_adds[plan.way] for plan in self.blocks.values())

    @property
    def bytes_per_target(self) -> float:
        """Expected memory for one target."""
        return sum(plan.bytes_per_target[plan.way] for plan in self.blocks.values())

    def record(self) -> list[dict[str, Any]]:
        """One plain dictionary per block, for a manifest."""
        return [
            {
                "layer": str(plan.block),
                "way": plan.way,
                "rows_per_candidate": plan.rows_per_candidate,
                "rows_per_target": plan.rows_per_target,
                "multiply_adds": plan.multiply_adds[plan.way],
                "bytes_per_target": plan.bytes_per_target[plan.way],
            }
            for plan in self.blocks.values()
        ]


def make_plan(candidates: Gradients, targets: Gradients, work: Work, options: Options | None = None) -> Plan:
    """For every block the cheapest way that is allowed, by the rows counted in samples of candidates and targets.

    Candidates that count as units, or are read under several masks, are given so; targets are given one by one.

    >>> import torch
    >>> from endtask.gradients.rows import LinearRows
    >>> row = LinearRows(left=torch.zeros(1, 64), right=torch.zeros(1, 64), owners=torch.tensor([0]))
    >>> sample = Gradients(1, {Block("layers.1.attn.Wo", 64, 64): (row,)})
    >>> plan = make_plan(sample, sample, Work(candidates=1000, targets=100, units=100))
    >>> [(line["layer"], line["way"], line["bytes_per_target"]) for line in plan.record()]
    [('layers.1.attn.Wo', 'pairs', 512.0)]
    """
    options = options or Options()
    share = None if options.memory is None else options.memory / len(targets.blocks) / work.targets
    plans = {}
    for block, uses in targets.blocks.items():
        costs = BlockCosts(block, count_rows(candidates, block), count_rows(targets, block), work, options)
        plans[block] = _block_plan(costs, share, uses[0].right.element_size())
    return Plan(options, plans)


def _block_plan(costs: BlockCosts, most_bytes: float | None, item: int) -> BlockPlan:
    ways = costs.options.ways
    times = {way: costs.multiply_adds(way) for way in ways}
    sizes = {way: costs.bytes_per_target(way, item) for way in ways}
    fitting = [way for way in ways if most_bytes is None or sizes[way] <= most_bytes]
    ranking = times if fitting else sizes
    return BlockPlan(
        costs.block,
        min(fitting or ways, key=lambda way: ranking[way]),
        sum(one.rows for one in costs.candidate),
        sum(one.rows for one in costs.target),
        times,
        sizes,
    )
