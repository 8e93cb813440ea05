"""The select stage: which of the retrieved passages are trained on, under an exact budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.files.selection_table import read_selection, write_selection
from endtask.records import Selected
from endtask.settings import SelectSettings, SizeBudget

SELECTION = "selection.parquet"
Order = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """What selectors see of the retrieved passages, one array entry per passage, in corpus order."""

    rank: NDArray[np.int64]
    score: NDArray[np.float64]
    bytes: NDArray[np.int64]


def best_rank(candidates: Candidates) -> Order:
    """Best BM25 rank over all examples first; then the higher score, then the earlier passage."""
    places = np.arange(len(candidates.rank))
    return np.lexsort((places, -candidates.score, candidates.rank))


SELECTORS: dict[str, Callable[[Candidates], Order]] = {"best_rank": best_rank}


def select(retrieved: Path, settings: SelectSettings, folder: Path, *, corpus_bytes: int) -> dict[str, Any]:
    """Write the selection; returns counts for the manifest."""
    if settings.selector == "none":
        write_selection(folder / SELECTION, [])
        return {"passages": 0, "bytes": 0, "share_of_corpus": 0.0}
    candidates = read_candidates(retrieved)
    order = SELECTORS[settings.selector](candidates)
    kept = fill(order, candidates.bytes, settings.budget, corpus_bytes=corpus_bytes)
    if corpus_bytes and len(kept) == 0:
        raise InputError(
            "no passage was kept",
            key="select.budget",
            hint="the corpus shares no word with the task, or the budget is smaller than one passage",
        )
    passages = write_selection(folder / SELECTION, _kept_passages(retrieved, set(kept.tolist()), settings.selector))
    size = int(candidates.bytes[kept].sum())
    return {
        "passages": passages,
        "bytes": size,
        "share_of_corpus": size / corpus_bytes if corpus_bytes else 0.0,
    }


def fill(order: Order, sizes: NDArray[np.int64], budget: SizeBudget | None, *, corpus_bytes: int) -> Order:
    """The longest beginning of `order` that fits the budget."""
    if budget is None:
        return order
    if budget.unit == "passages":
        return order[: int(budget.amount)]
    limit = budget.amount if budget.unit == "bytes" else budget.amount * corpus_bytes
    return order[: int(np.searchsorted(np.cumsum(sizes[order]), limit, side="right"))]


def read_candidates(retrieved: Path) -> Candidates:
    """The columns selectors need, without holding any text."""
    rows = [(item.rank, item.score, len(item.document.text.encode())) for item in read_selection(retrieved)]
    return Candidates(
        np.asarray([row[0] for row in rows], dtype=np.int64),
        np.asarray([row[1] for row in rows], dtype=np.float64),
        np.asarray([row[2] for row in rows], dtype=np.int64),
    )


def _kept_passages(retrieved: Path, kept: set[int], selector: str) -> Iterator[Selected]:
    for place, item in enumerate(read_selection(retrieved)):
        if place in kept:
            yield replace(item, reason=f"{selector}: rank {item.rank} for {item.asked_by[0]}")
