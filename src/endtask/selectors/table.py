"""Keep some rows of a table of candidates, whole batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import Batch, read_batches, selection_schema, write_batches
from endtask.selectors.base import Order

Reason = Callable[[Batch, Order], Any]
"""The column of reasons for a batch of kept rows, given their places in the table of candidates."""


Replaced = Mapping[str, NDArray[Any]]
"""Numbers in the place of a column's, one for each place in the table of candidates."""


def keep_rows(
    candidates: Path, kept: Order, path: Path, reason: Reason | None = None, replaced: Replaced | None = None
) -> int:
    """Write the kept rows in the table's own order, with new reasons and numbers if any are given; returns how many."""
    import pyarrow.parquet as parquet

    is_kept = np.zeros(parquet.read_metadata(candidates).num_rows, dtype=bool)
    is_kept[kept] = True
    return write_batches(path, _kept_batches(candidates, is_kept, reason, replaced or {}))


def _kept_batches(
    candidates: Path, is_kept: NDArray[np.bool_], reason: Reason | None, replaced: Replaced
) -> Iterator[Batch]:
    import pyarrow as arrow

    schema = selection_schema()
    places = np.flatnonzero(is_kept)
    start = 0
    for batch in read_batches(candidates, is_kept, schema.names):
        columns = [batch.column(name) for name in schema.names]
        here = places[start : start + len(batch)]
        if reason is not None:
            columns[schema.get_field_index("reason")] = reason(batch, here)
        for name, values in replaced.items():
            columns[schema.get_field_index(name)] = arrow.array(values[here], schema.field(name).type)
        start += len(batch)
        yield arrow.RecordBatch.from_arrays(columns, schema=schema)
