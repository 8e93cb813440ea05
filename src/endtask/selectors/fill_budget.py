"""Exact budgets: the longest beginning of an order that fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.config import SelectSettings, SizeBudget
from endtask.errors import InputError
from endtask.io.selection_table import read_statistics
from endtask.selectors.base import Order, RunContext


def fill(order: Order, sizes: NDArray[np.int64], budget: SizeBudget | None, *, corpus_bytes: int) -> Order:
    """The longest beginning of `order` that fits the budget; `sizes` are the bytes of every candidate.

    >>> fill(np.array([2, 0, 1]), np.array([10, 20, 30]), SizeBudget.parse("41B"), corpus_bytes=60)
    array([2, 0])
    """
    if budget is None:
        return order
    if budget.unit == "passages":
        return order[: int(budget.amount)]
    assert budget.unit != "retrieved", "turned into bytes by `in_bytes`"
    limit = budget.amount if budget.unit == "bytes" else budget.amount * corpus_bytes
    # 29% of 100 bytes is 28.999999999999996 in floating point; a passage of 29 bytes fits all the same.
    return order[: int(np.searchsorted(np.cumsum(sizes[order]), np.floor(limit + 1e-6), side="right"))]


def in_bytes(settings: SelectSettings, retrieved: Path) -> SelectSettings:
    """The same settings, a budget that is a share of what was retrieved turned into bytes of text."""
    budget = settings.budget
    if budget is None or budget.unit != "retrieved":
        return settings
    # As in `fill`: 29% of 100 bytes are 29 bytes.
    allowed = int(budget.amount * int(read_statistics(retrieved).bytes.sum()) + 1e-6)
    return settings.model_copy(update={"budget": SizeBudget(allowed, "bytes", f"{allowed}B")})


def fill_or_raise(order: Order, sizes: NDArray[np.int64], run: RunContext, *, otherwise: str) -> Order:
    """The same under the settings' budget; to keep nothing is refused, for which `otherwise` is the other cause."""
    kept = fill(order, sizes, run.settings.budget, corpus_bytes=run.corpus_bytes)
    if len(kept) == 0:
        hint = f"{otherwise}, or the budget is smaller than one passage"
        raise InputError("no passage was kept", key="select.budget", hint=hint)
    return kept
