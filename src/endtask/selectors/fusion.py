"""Combine several selectors by reciprocal rank fusion (Cormack et al. 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializeAsAny, field_validator

from endtask.config import Settings
from endtask.config.section import PartSection
from endtask.registry import Registry
from endtask.selectors.base import (
    Candidates,
    Order,
    PartConfig,
    Ranking,
    RunContext,
    Selector,
    by_score,
    fill,
    overlap,
    ranks_of,
    selectors,
)
from endtask.task import Task

_DAMPING = 60
"""The constant of the paper; a larger value gives the first ranks less weight."""
_DEFAULT = ("best_rank", "dsir")


class FusedSettings(PartSection):
    """One of the selectors that `fusion` combines, with its options."""

    registry: ClassVar[Registry[Any]] = selectors

    name: str = Field("best_rank", description="the selector")


@selectors.register("fusion")
class Fusion(Selector):
    """the sum of 1 / (60 + rank) over several selectors (reciprocal rank fusion)"""

    class Config(PartConfig):
        """Options of `fusion`."""

        selectors: tuple[SerializeAsAny[FusedSettings], ...] = Field(
            (),
            description="the selectors whose ranks are combined, by name or with options; empty: best_rank and dsir",
        )

        @field_validator("selectors")
        @classmethod
        def selectors_differ(cls, sections: tuple[FusedSettings, ...]) -> tuple[FusedSettings, ...]:
            names = [section.name for section in sections]
            if sections and len(set(names)) < max(2, len(names)):
                raise ValueError("name two selectors or more, each once")
            for section in sections:
                if type(section.part).rank is Selector.rank or section.name == Fusion.name:
                    raise ValueError(f"{section.name} does not rank candidates")
            return sections

    config: Config

    def members(self) -> tuple[Selector, ...]:
        """Return the combined selectors."""
        sections = self.config.selectors or tuple(FusedSettings(name=name) for name in _DEFAULT)
        return tuple(section.part for section in sections)

    def parts(self) -> tuple[Selector, ...]:
        """Return this selector and its members."""
        return (self, *self.members())

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Run the checks of the members too."""
        super().preflight(task, settings, has_corpus=has_corpus)
        for member in self.members():
            member.preflight(task, settings, has_corpus=has_corpus)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by the sum of 1 / (60 + rank) over the members."""
        rankings = {member.name: member.rank(candidates, run) for member in self.members()}
        orders = {name: ranking.order for name, ranking in rankings.items()}
        ranks = {name: ranks_of(order) for name, order in orders.items()}
        score = fused(list(ranks.values()))

        def reasons(indices: Order) -> list[str]:
            rows = np.stack([rank[indices] for rank in ranks.values()], axis=1).tolist()
            return [
                "fusion: ranks " + ", ".join(f"{name} {rank}" for name, rank in zip(ranks, row, strict=True))
                for row in rows
            ]

        counts = {key: value for ranking in rankings.values() for key, value in ranking.counts.items()}
        counts["fused"] = _overlaps(orders, run, candidates)
        return Ranking(by_score(score, candidates), score, reasons, counts)


def fused(ranks: Sequence[Order]) -> NDArray[np.float64]:
    """Return the fused score of each candidate.

    >>> fused([np.array([1, 2]), np.array([1, 40])]).round(4).tolist()
    [0.0328, 0.0261]
    """
    # Sorted, so that the order of the selectors in the settings does not change the rounding of the sum.
    parts = np.sort(np.stack([1.0 / (_DAMPING + rank) for rank in ranks]), axis=0)
    score: NDArray[np.float64] = parts.sum(axis=0)
    return score


def _overlaps(orders: Mapping[str, Order], run: RunContext, candidates: Candidates) -> dict[str, Any]:
    """Return the overlap of every two selectors within the budget."""
    budget, size = run.settings.budget, run.corpus_bytes
    selected = {name: fill(order, candidates.bytes, budget, corpus_bytes=size) for name, order in orders.items()}
    return {
        f"{first}, {second}": overlap(selected[first], selected[second]) for first, second in combinations(selected, 2)
    }
