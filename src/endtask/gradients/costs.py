"""What each way to the products costs in multiply-adds and memory; docs/gradients.md has the formulas."""

from __future__ import annotations

from dataclasses import dataclass

from endtask.gradients.options import Options, Way
from endtask.gradients.rows import Block, Gradients, LinearRows


@dataclass(frozen=True)
class Work:
    """How much there is to do: candidates (or units of them), targets, and the units that the targets form."""

    candidates: int
    targets: int
    units: int


@dataclass(frozen=True)
class Counted:
    """Rows of one kind for one text, on average, and the numbers in a row's left factor; a token counts as one."""

    rows: float
    left: int
    lookup: bool = False


@dataclass(frozen=True)
class BlockCosts:
    """The costs of one block, from the rows of candidates and targets."""

    block: Block
    candidate: tuple[Counted, ...]
    target: tuple[Counted, ...]
    work: Work
    options: Options

    def multiply_adds(self, way: Way) -> float:
        """For one candidate against all units, with its share of making the targets ready.

        >>> last = (Block("W", 768, 768), (Counted(19, 768),), (Counted(1, 768),), Work(10**6, 4000, 4000), Options())
        >>> [f"{BlockCosts(*last).multiply_adds(way):.1e}" for way in ("pairs", "matrix", "bilinear")]
        ['1.2e+08', '2.4e+09', '4.5e+10']
        """
        units, share = self.work.units, self.work.targets / self.work.candidates
        if way == "pairs":
            return self._pairs(self.target, self.work.targets)
        if way == "low_rank":
            return self._pairs(self._few(), units)
        if way == "matrix":
            return self._build(self.candidate) + units * self.block.size + share * self._build(self.target)
        if way == "bilinear":
            return units * self._build(self.candidate) + share * self._build(self.target)
        return self._size * (self._numbers(self.candidate) + units + share * self._numbers(self.target))

    def bytes_per_target(self, way: Way, item: int) -> float:
        """What is held for one target, `item` bytes a number."""
        share = self.work.units / self.work.targets
        row_item = item if self.options.dtype is None else self.options.dtype.itemsize
        if way == "pairs":
            return row_item * self._numbers(self.target)
        if way == "low_rank":
            return row_item * share * self._numbers(self._few())
        return item * share * (self._size if way == "projected" else self.block.size)

    @property
    def _size(self) -> int:
        return 0 if self.options.projection is None else self.options.projection.size

    def _few(self) -> tuple[Counted, ...]:
        """A unit's rows after truncation; rows of tokens stay."""
        each = self.work.targets / self.work.units
        most = self.options.rank or 0
        return tuple(
            Counted(one.rows * each if one.lookup else min(one.rows * each, most), one.left, one.lookup)
            for one in self.target
        )

    def _pairs(self, kept: tuple[Counted, ...], owners: int) -> float:
        """Pairs of rows; where tokens are kept, the candidate's matrix and a line of it for each of them."""
        width, total = self.block.width, 0.0
        for rows in kept:
            if rows.lookup:
                total += self.block.size + self._build(self.candidate) + owners * rows.rows * width
            else:
                total += sum(owners * one.rows * rows.rows * (one.left + width) for one in self.candidate)
        return total

    def _build(self, counted: tuple[Counted, ...]) -> float:
        return sum(one.rows * one.left * self.block.width for one in counted)

    def _numbers(self, counted: tuple[Counted, ...]) -> float:
        return sum(one.rows * (one.left + self.block.width) for one in counted)


def count_rows(gradients: Gradients, block: Block) -> tuple[Counted, ...]:
    """A block's rows for one text, on average."""
    counted = []
    for rows in gradients.blocks[block]:
        each = len(rows.owners) / max(1, gradients.count)
        linear = isinstance(rows, LinearRows)
        counted.append(Counted(each, block.height if linear else 1, lookup=not linear))
    return tuple(counted)
