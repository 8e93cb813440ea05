"""The gradients of targets, kept in the cheapest form, and candidates' products with them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.errors import InputError
from endtask.gradients.arithmetic import tensor_float
from endtask.gradients.costs import Work
from endtask.gradients.kept import Kept, KeptFewRows, KeptMatrices, KeptRows, KeptSketches
from endtask.gradients.options import Options
from endtask.gradients.plan import BlockPlan, Plan, make_plan
from endtask.gradients.rows import Gradients
from endtask.gradients.units import Units

Measure = Literal["dot", "cosine"]


class Targets:
    """Units of targets, to which batches are added in any order, and against which candidates are scored."""

    def __init__(self, plan: Plan, units: Units) -> None:
        self.plan, self.units = plan, units
        self._kept = {block: _empty(one, units.count, plan.options) for block, one in plan.blocks.items()}
        self._added = np.zeros(len(units.numbers), dtype=bool)
        self._inverse: Tensor | None = None  # 1 / length of every unit's gradient

    def add(self, gradients: Gradients, texts: NDArray[np.int64] | None = None) -> None:
        """Add the gradients of some targets, each once; `texts` are their places among all, by default the first."""
        texts = np.arange(gradients.count) if texts is None else texts
        self._refuse_wrong_places(texts)
        merged, numbers = self.units.merge(gradients, texts)
        for block, kept in self._kept.items():
            uses = merged.blocks[block]
            kept.add(uses, torch.from_numpy(numbers).to(uses[0].owners.device))
        self._added[texts] = True
        self._inverse = None

    def scores(self, candidates: Gradients, measure: Measure = "dot") -> Tensor:
        """Every candidate against every unit, over all chosen layers: (candidates, units).

        The product says how much a small step down the candidate's slope lowers the unit's loss; the cosine is the
        product over both lengths, 0 where a gradient has none.
        """
        if measure not in ("dot", "cosine"):
            raise InputError(f"there is no measure {measure!r}", key="measure", hint="dot or cosine")
        missing = np.flatnonzero(~self._added)
        if len(missing):
            raise ValueError(f"{len(missing)} of {len(self._added)} targets were not added, such as {missing[0]}")
        if not candidates.count:
            return _empty_table(candidates, 0, self.units.count)
        with tensor_float(self.plan.options.tensor_float):
            products = [kept.products(candidates.blocks[block], candidates.count) for block, kept in self._kept.items()]
        total = torch.stack(products).sum(0)
        return total if measure == "dot" else total * self._inverse_lengths(candidates)

    @property
    def bytes_per_target(self) -> float:
        """What is held in memory for one target, over all layers."""
        return sum(kept.bytes for kept in self._kept.values()) / max(1, len(self.units.numbers))

    @property
    def lowest_share(self) -> float:
        """The least share of a unit's squared norm, for one weight, that truncation left; 1 where none was truncated.

        A unit that comes in several batches is truncated batch by batch and then as a whole: its share is the lowest of
        its batches' times that of the whole.
        """
        few = [kept for kept in self._kept.values() if isinstance(kept, KeptFewRows)]
        return min((float(kept.shares.min()) for kept in few), default=1.0)

    def _refuse_wrong_places(self, texts: NDArray[np.int64]) -> None:
        if len(texts) and not 0 <= texts.min() <= texts.max() < len(self._added):
            raise ValueError(f"places {texts.min()} to {texts.max()}, but there are {len(self._added)} targets")
        again = texts[self._added[texts]]
        if len(again):
            raise ValueError(f"target {again[0]} was added before; of every further batch, name the places in `texts`")
        if len(np.unique(texts)) < len(texts):
            raise ValueError("a target is named twice in `texts`")

    def _inverse_lengths(self, candidates: Gradients) -> Tensor:
        """1 / (length of the candidate x length of the unit): (candidates, units)."""
        if self._inverse is None:
            self._inverse = _inverse_roots([kept.squared_norms() for kept in self._kept.values()])
        own = [
            kept.squared_norms_of(candidates.blocks[block], candidates.count, candidates.most_rows)
            for block, kept in self._kept.items()
        ]
        return _inverse_roots(own)[:, None] * self._inverse


def products(
    candidates: Gradients, targets: Gradients, measure: Measure = "dot", options: Options | None = None
) -> Tensor:
    """All products of two sets of gradients that are at hand: (candidates, targets).

    >>> from endtask.gradients.rows import Block, LinearRows
    >>> rows = LinearRows(left=torch.ones(2, 1), right=torch.tensor([[3.0], [-5.0]]), owners=torch.tensor([0, 1]))
    >>> gradients = Gradients(2, {Block("W", 1, 1): (rows,)})
    >>> products(gradients, gradients).tolist()
    [[9.0, -15.0], [-15.0, 25.0]]
    >>> products(gradients, gradients, "cosine").round(decimals=4).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    if not targets.count:
        return _empty_table(candidates, candidates.count, 0)
    work = Work(max(1, candidates.count), targets.count, targets.count)
    kept = Targets(make_plan(candidates, targets, work, options), Units.single(targets.count))
    kept.add(targets)
    return kept.scores(candidates, measure)


def _empty_table(like: Gradients, height: int, width: int) -> Tensor:
    return next(iter(like.blocks.values()))[0].right.new_zeros((height, width))


def _empty(plan: BlockPlan, units: int, options: Options) -> Kept:
    if plan.way == "pairs":
        return KeptRows(plan.block, units, options.dtype)
    if plan.way == "low_rank":
        assert options.rank is not None
        return KeptFewRows(plan.block, units, options.rank, options.dtype)
    if plan.way == "projected":
        assert options.projection is not None
        return KeptSketches(plan.block, units, options.projection)
    return KeptMatrices(plan.block, units, bilinear=plan.way == "bilinear")


def _inverse_roots(squares: list[Tensor]) -> Tensor:
    total = torch.stack(squares).sum(0).clamp(min=0)  # rounding may leave a zero below it
    return torch.where(total > 0, total.rsqrt(), 0)
