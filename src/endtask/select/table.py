"""Keep some rows of a table of candidates, whole batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.files.selection_table import Batch, read_batches, selection_schema, write_batches
from endtask.select.inputs import Order

Reason = Callable[[Batch, Order], Any]
"""The column of reasons for a batch of kept rows, given their places in the table of candidates."""


def keep_rows(candidates: Path, kept: Order, path: Path, reason: Reason | None = None) -> int:
    """Write the kept rows in the table's own order, with new reasons if any are given; returns how many."""
    import pyarrow.parquet as parquet

    is_kept = np.zeros(parquet.read_metadata(candidates).num_rows, dtype=bool)
    is_kept[kept] = True
    return write_batches(path, _kept_batches(candidates, is_kept, reason))


def _kept_batches(candidates: Path, is_kept: NDArray[np.bool_], reason: Reason | None) -> Iterator[Batch]:
    import pyarrow as arrow

    schema = selection_schema()
    places = np.flatnonzero(is_kept)
    start = 0
    for batch in read_batches(candidates, is_kept, schema.names):
        columns = [batch.column(name) for name in schema.names]
        if reason is not None:
            columns[schema.get_field_index("reason")] = reason(batch, places[start : start + len(batch)])
        start += len(batch)
        yield arrow.RecordBatch.from_arrays(columns, schema=schema)
