"""The select stage: which of the retrieved passages are trained on, under an exact budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.files.selection_table import SelectionFigures, read_figures, read_selection, write_selection
from endtask.records import Selected
from endtask.select.best_rank import best_rank
from endtask.settings import SelectSettings, SizeBudget

SELECTION = "selection.parquet"
Order = NDArray[np.int64]


SELECTORS: dict[str, Callable[[SelectionFigures], Order]] = {"best_rank": best_rank}
"""One file each; a selector puts all candidates into an order, from which the budget takes the beginning."""


def select(retrieved: Path, settings: SelectSettings, folder: Path, *, corpus_bytes: int) -> dict[str, Any]:
    """Write the selection; returns counts for the manifest."""
    if settings.selector == "none":
        write_selection(folder / SELECTION, [])
        return {"passages": 0, "bytes": 0, "share_of_corpus": 0.0}
    candidates = read_figures(retrieved)
    order = SELECTORS[settings.selector](candidates)
    kept = fill(order, candidates.bytes, settings.budget, corpus_bytes=corpus_bytes)
    if corpus_bytes and len(kept) == 0:
        raise InputError(
            "no passage was kept",
            key="select.budget",
            hint="the corpus shares no word with the task, or the budget is smaller than one passage",
        )
    is_kept = np.zeros(len(order), dtype=bool)
    is_kept[kept] = True
    passages = write_selection(folder / SELECTION, _kept_passages(retrieved, is_kept, settings.selector))
    size = int(candidates.bytes[kept].sum())
    return {
        "passages": passages,
        "bytes": size,
        "share_of_corpus": size / corpus_bytes if corpus_bytes else 0.0,
    }


def fill(order: Order, sizes: NDArray[np.int64], budget: SizeBudget | None, *, corpus_bytes: int) -> Order:
    """The longest beginning of `order` that fits the budget.

    >>> fill(np.array([2, 0, 1]), np.array([10, 20, 30]), SizeBudget.parse("41B"), corpus_bytes=60)
    array([2, 0])
    """
    if budget is None:
        return order
    if budget.unit == "passages":
        return order[: int(budget.amount)]
    limit = budget.amount if budget.unit == "bytes" else budget.amount * corpus_bytes
    # 29% of 100 bytes is 28.999999999999996 in floating point; a passage of 29 bytes fits all the same.
    return order[: int(np.searchsorted(np.cumsum(sizes[order]), np.floor(limit + 1e-6), side="right"))]


def _kept_passages(retrieved: Path, kept: NDArray[np.bool_], selector: str) -> Iterator[Selected]:
    for item in read_selection(retrieved, kept):
        yield replace(item, reason=f"{selector}: rank {item.rank} for {item.asked_by[0]}")
