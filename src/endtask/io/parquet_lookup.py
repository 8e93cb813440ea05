"""A few rows of a large Parquet table, found by reading one of its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from endtask.errors import InputError

Row = dict[str, Any]
_COMPARED = 500


def rows_where(path: Path, column: str, values: Collection[str], columns: list[str] | None = None) -> Iterator[Row]:
    """Stream the rows whose cell is one of `values` or, in a column of lists, holds one of them.

    The other columns are read only of the row groups that hold such a row.
    """
    import pyarrow as arrow

    wanted = arrow.array(sorted(values), arrow.string())
    with _opened(path, column) as file:
        for group in range(file.num_row_groups):
            places = _places(file.read_row_group(group, columns=[column]).column(0).combine_chunks(), wanted)
            if len(places):
                yield from file.read_row_group(group, columns=columns).take(places).to_pylist()


def nearest_value(path: Path, column: str, text: str) -> str | None:
    """The cell of a column of strings that is closest in spelling to `text`; None where there is no cell."""
    with _opened(path, column) as file:
        return nearest_of(file.read(columns=[column]).column(0), text)


def nearest_of(cells: Any, text: str) -> str | None:
    """The same for an Arrow array; of equally close cells the first.

    Compared are the cells that share the longest beginning or the longest end with `text`, at most some hundreds.

    >>> import pyarrow
    >>> nearest_of(pyarrow.array(["abstracts/p6", "abstracts/p7", "books/p6"]), "abstract/p7")
    'abstracts/p7'
    """
    import pyarrow.compute as compute

    lengths = range(len(text), 0, -1)
    same_start = _first_hits(cells, compute.starts_with, (text[:length] for length in lengths))
    same_end = _first_hits(cells, compute.ends_with, (text[-length:] for length in lengths))
    compared = [*same_start, *same_end] or cells.slice(0, _COMPARED).to_pylist()
    return max(compared, key=lambda cell: SequenceMatcher(None, cell, text).ratio(), default=None)


def _first_hits(cells: Any, test: Callable[[Any, str], Any], pieces: Iterable[str]) -> list[str]:
    """Cells that pass the test with the first piece that any cell passes it with."""
    for piece in pieces:
        hits = cells.filter(test(cells, piece))
        if len(hits):
            return list(hits.slice(0, _COMPARED).to_pylist())
    return []


def _places(cells: Any, wanted: Any) -> Any:
    """The places of an array, each once and rising, where a cell is or holds a wanted string."""
    import pyarrow.compute as compute
    import pyarrow.types as types

    if not types.is_list(cells.type):
        return compute.indices_nonzero(compute.is_in(cells, value_set=wanted))
    holds = compute.is_in(compute.list_flatten(cells), value_set=wanted)
    return compute.unique(compute.filter(compute.list_parent_indices(cells), holds))


@contextmanager
def _opened(path: Path, column: str) -> Iterator[Any]:
    """Open a table that must have a column."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                raise InputError(f"no column {column!r}", path=path, hint="was the file changed by hand?")
            yield file
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"not a readable Parquet file: {reason}", path=path) from None
