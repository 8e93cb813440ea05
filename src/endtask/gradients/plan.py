"""Choose, from samples, how the target gradients of each weight are stored; docs/concepts/gradients.md has the cost formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from endtask.errors import InputError, did_you_mean
from endtask.gradients.rows import Block, Gradients, LinearRows

Strategy = Literal["pairs", "matrix"]
"""`pairs` stores targets as rows and multiplies pairs of rows; `matrix` stores and multiplies matrices."""
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True)
class Options:
    """Options of a plan; by default each block takes the cheaper strategy.

    `strategy` forces one. `memory` is the most that all targets may take, in bytes, each block having the same share
    (None: no limit); where neither strategy keeps to it, the smaller is taken.
    `tensor_float` lets a GPU round the factors of float32 products to 10 bits, which makes them several times as fast.

    >>> Options().strategies, Options(strategy="matrix").strategies
    (('pairs', 'matrix'), ('matrix',))
    """

    strategy: Strategy | Literal["auto"] = "auto"
    memory: int | None = 4 << 30
    tensor_float: bool = False

    def __post_init__(self) -> None:
        known = ("auto", *STRATEGIES)
        if self.strategy not in known:
            hint = did_you_mean(self.strategy, known)
            raise InputError(f"there is no strategy {self.strategy!r}", key="strategy", hint=hint)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The strategies to choose from."""
        return STRATEGIES if self.strategy == "auto" else (self.strategy,)


@dataclass(frozen=True)
class Workload:
    """The number of candidates (or units of them), of targets, and of units of targets."""

    candidates: int
    targets: int
    units: int


@dataclass(frozen=True)
class Counted:
    """Rows of one kind for one text, on average, and the numbers in a row's left factor; a token counts 1."""

    rows: float
    left: int
    lookup: bool = False


@dataclass(frozen=True)
class BlockCosts:
    """The costs of one block, from the rows of candidates and targets."""

    block: Block
    candidate: tuple[Counted, ...]
    target: tuple[Counted, ...]
    workload: Workload

    def multiply_adds(self, strategy: Strategy) -> float:
        """Return the multiply-adds of a candidate against all units, with its share of preparing the targets.

        >>> workload = Workload(10**6, 4000, 4000)
        >>> costs = BlockCosts(Block("W", 768, 768), (Counted(19, 768),), (Counted(1, 768),), workload)
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
        """Return the cost of pairs of rows; for stored tokens, of the candidate's matrix and a row of it per token."""
        width, targets, total = self.block.width, self.workload.targets, 0.0
        for rows in self.target:
            if rows.lookup:
                total += self.block.size + self._build(self.candidate) + targets * rows.rows * width
            else:
                total += sum(targets * counts.rows * rows.rows * (counts.left + width) for counts in self.candidate)
        return total

    def _build(self, counted: tuple[Counted, ...]) -> float:
        return sum(counts.rows * counts.left * self.block.width for counts in counted)


@dataclass(frozen=True)
class BlockPlan:
    """The strategy of one block, and the expected costs of all strategies that were considered."""

    block: Block
    strategy: Strategy
    rows_per_candidate: float
    rows_per_target: float
    multiply_adds: dict[Strategy, float]
    """For one candidate against all units, with its share of preparing the targets."""
    bytes_per_target: dict[Strategy, float]


@dataclass(frozen=True)
class Plan:
    """The strategies of all blocks."""

    options: Options
    blocks: dict[Block, BlockPlan]

    @property
    def multiply_adds(self) -> float:
        """Expected for one candidate against all units."""
        return sum(plan.multiply_adds[plan.strategy] for plan in self.blocks.values())

    @property
    def bytes_per_target(self) -> float:
        """Expected memory for one target."""
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
    """Choose the cheaper strategy within the memory for every block, by the rows of sampled candidates and targets.

    Sampled candidates are units, or means over several masks, as in scoring; sampled targets are single texts.

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


def count_rows(gradients: Gradients, block: Block) -> tuple[Counted, ...]:
    """Return the mean number of rows of a text for a block."""
    counted = []
    for rows in gradients.blocks[block]:
        each = len(rows.owners) / max(1, gradients.count)
        linear = isinstance(rows, LinearRows)
        counted.append(Counted(each, block.height if linear else 1, lookup=not linear))
    return tuple(counted)


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
