"""From a ranking to a selection: orders of candidates, exact budgets, and the rows that are written.

Nothing here knows what a selector is; base.py and the selectors build on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import SelectSettings, SizeBudget
from endtask.io.selection_table import (
    Batch,
    SelectionStatistics,
    read_batches,
    read_statistics,
    selection_schema,
    write_batches,
)

Order = NDArray[np.int64]
"""Indices of candidates, best first."""

Candidates = SelectionStatistics
"""The table of retrieved passages in columns: `rank`, `score`, `bytes` and `class_ranks`, one entry per candidate."""

Reason = Callable[[Batch, Order], Any]
"""Returns the column of reasons for a batch of selected rows, given their indices in the table of candidates."""

NewValues = Mapping[str, NDArray[Any]]
"""Values that replace a column, one for each row of the table of candidates."""


def ranks_of(order: Order) -> Order:
    """Return the rank of each candidate, from 1.

    >>> ranks_of(np.array([2, 0, 1])).tolist()
    [2, 3, 1]
    """
    ranks = np.empty_like(order)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def by_score(score: NDArray[np.float64], candidates: Candidates) -> Order:
    """Return the highest score first; ties go to the better BM25 rank, then to the earlier passage."""
    return np.lexsort((np.arange(len(score)), -candidates.score, candidates.rank, -score))


def by_bm25_rank(candidates: Candidates) -> Order:
    """Return the best BM25 rank first; ties go to the higher score, then to the earlier passage."""
    return np.lexsort((np.arange(len(candidates.rank)), -candidates.score, candidates.rank))


def fill(order: Order, sizes: NDArray[np.int64], budget: SizeBudget | None, *, corpus_bytes: int) -> Order:
    """Return the longest beginning of `order` that fits the budget; `sizes` are the bytes of every candidate.

    >>> fill(np.array([2, 0, 1]), np.array([10, 20, 30]), SizeBudget.parse("41B"), corpus_bytes=60)
    array([2, 0])
    """
    if budget is None:
        return order
    if budget.unit == "passages":
        return order[: int(budget.amount)]
    assert budget.unit != "retrieved", "budget_in_bytes converts it"
    limit = budget.amount if budget.unit == "bytes" else budget.amount * corpus_bytes
    # 29% of 100 bytes is 28.999999999999996 in floating point; a passage of 29 bytes fits all the same.
    return order[: int(np.searchsorted(np.cumsum(sizes[order]), np.floor(limit + 1e-6), side="right"))]


def budget_in_bytes(settings: SelectSettings, table: Path) -> SelectSettings:
    """Return the settings with a budget that is a share of the retrieved text converted to bytes."""
    budget = settings.budget
    if budget is None or budget.unit != "retrieved":
        return settings
    # As in `fill`: 29% of 100 bytes are 29 bytes.
    allowed = int(budget.amount * int(read_statistics(table).bytes.sum()) + 1e-6)
    return settings.model_copy(update={"budget": SizeBudget(allowed, "bytes", f"{allowed}B")})


def write_rows(
    candidates: Path, selected: Order, path: Path, reason: Reason | None = None, new_values: NewValues | None = None
) -> int:
    """Write the selected rows of a table in the table's order and return their number.

    `reason` and `new_values` replace columns.
    """
    import pyarrow.parquet as parquet

    is_selected = np.zeros(parquet.read_metadata(candidates).num_rows, dtype=bool)
    is_selected[selected] = True
    return write_batches(path, _selected_batches(candidates, is_selected, reason, new_values or {}))


def _selected_batches(
    candidates: Path, is_selected: NDArray[np.bool_], reason: Reason | None, new_values: NewValues
) -> Iterator[Batch]:
    import pyarrow as arrow

    schema = selection_schema()
    indices = np.flatnonzero(is_selected)
    start = 0
    for batch in read_batches(candidates, is_selected, schema.names):
        columns = [batch.column(name) for name in schema.names]
        here = indices[start : start + len(batch)]
        if reason is not None:
            columns[schema.get_field_index("reason")] = reason(batch, here)
        for name, values in new_values.items():
            columns[schema.get_field_index(name)] = arrow.array(values[here], schema.field(name).type)
        start += len(batch)
        yield arrow.RecordBatch.from_arrays(columns, schema=schema)


def with_matched_query(reasons: list[str], batch: Batch) -> Any:
    """Return the column of reasons, each followed by the passage's BM25 rank and the query that gave it."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    texts = arrow.array(reasons, arrow.string())
    return compute.binary_join_element_wise(texts, "; BM25 rank ", rank, " for ", matched_query, "")


def overlap(first: NDArray[Any], second: NDArray[Any]) -> dict[str, float]:
    """Return the passages in both as a share of `first` and of all in either (Jaccard); ids must not repeat.

    >>> overlap(np.array([1, 2]), np.array([2, 3, 4]))
    {'share': 0.5, 'jaccard': 0.25}
    """
    both = len(np.intersect1d(first, second, assume_unique=True))
    either = len(first) + len(second) - both
    return {"share": round(both / max(len(first), 1), 6), "jaccard": round(both / max(either, 1), 6)}
