"""Look up rows and nearest values in Parquet tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.rows.base import Row

_MOST_COMPARED = 500


def rows_where(path: Path, column: str, values: Collection[str], columns: list[str] | None = None) -> Iterator[Row]:
    """Stream the rows whose cell is one of `values` or, in a column of lists, contains one of them.

    Reads the other columns only in row groups with such a row.
    """
    import pyarrow as arrow

    wanted = arrow.array(sorted(values), arrow.string())
    with _opened(path, column) as file:
        for group in range(file.num_row_groups):
            indices = _matching(file.read_row_group(group, columns=[column]).column(0).combine_chunks(), wanted)
            if len(indices):
                yield from file.read_row_group(group, columns=columns).take(indices).to_pylist()


def nearest_value(path: Path, column: str, text: str) -> str | None:
    """Return the cell of a string column that is closest in spelling to `text`; None if there is no cell."""
    with _opened(path, column) as file:
        return nearest_of(file.read(columns=[column]).column(0), text)


def nearest_of(cells: Any, text: str) -> str | None:
    """Return the element of an Arrow array that is closest in spelling to `text`; of equally close ones, the first.

    Compares only the elements that share the longest prefix or the longest suffix with `text`, at most some hundreds.

    >>> import pyarrow
    >>> nearest_of(pyarrow.array(["abstracts/p6", "abstracts/p7", "books/p6"]), "abstract/p7")
    'abstracts/p7'
    """
    import pyarrow.compute as compute

    lengths = range(len(text), 0, -1)
    same_start = _first_matches(cells, compute.starts_with, (text[:length] for length in lengths))
    same_end = _first_matches(cells, compute.ends_with, (text[-length:] for length in lengths))
    compared = [*same_start, *same_end] or cells.slice(0, _MOST_COMPARED).to_pylist()
    return max(compared, key=lambda cell: SequenceMatcher(None, cell, text).ratio(), default=None)


def _first_matches(cells: Any, test: Callable[[Any, str], Any], affixes: Iterable[str]) -> list[str]:
    """Return the cells that match the first affix that any cell matches."""
    for affix in affixes:
        matches = cells.filter(test(cells, affix))
        if len(matches):
            return list(matches.slice(0, _MOST_COMPARED).to_pylist())
    return []


def _matching(cells: Any, wanted: Any) -> Any:
    """Return the ascending indices of the cells that are, or contain, a wanted string."""
    import pyarrow.compute as compute
    import pyarrow.types as types

    if not types.is_list(cells.type):
        return compute.indices_nonzero(compute.is_in(cells, value_set=wanted))
    holds = compute.is_in(compute.list_flatten(cells), value_set=wanted)
    return compute.unique(compute.filter(compute.list_parent_indices(cells), holds))


@contextmanager
def _opened(path: Path, column: str) -> Iterator[Any]:
    """Open a table, which must have the column."""
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
