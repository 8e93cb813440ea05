"""Cells become plain JSON; equal rows give equal bytes, whatever they were made of."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.api.cells import json_lines, plain_value
from endtask.errors import InputError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
CELLS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@given(st.lists(st.dictionaries(st.text(), CELLS, max_size=4), max_size=5))
def test_lines_are_the_rows_again(rows: list[dict[str, Any]]) -> None:
    if any("\ud800" <= sign <= "\udfff" for sign in json.dumps(rows, ensure_ascii=False)):
        return  # half characters have a test of their own
    lines = list(json_lines(rows, path="data"))
    assert [json.loads(line) for line in lines] == rows
    assert all(line.count(b"\n") == 1 for line in lines)


@given(st.lists(st.integers(-(2**40), 2**40) | st.floats(allow_infinity=False), min_size=1, max_size=8))
def test_arrays_series_and_lists_are_equal(values: list[float]) -> None:
    plain = [None if value != value else float(value) for value in values]
    assert plain_value([float(value) for value in values]) == plain
    assert plain_value(np.asarray(values, dtype=np.float64)) == plain
    assert [plain_value(cell) for cell in pd.Series(values, dtype=np.float64)] == plain
    assert [plain_value(cell) for cell in pd.Series(values, dtype="Float64")] == plain


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (pd.NA, None),
        (pd.NaT, None),
        (np.str_("a"), "a"),
        (np.bool_(True), True),
        (np.array([[1, 2]]), [[1, 2]]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (date(2026, 1, 2), "2026-01-02"),
        (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
        ({"a": np.int8(1)}, {"a": 1}),
    ],
)
def test_cells_of_libraries(cell: Any, expected: Any) -> None:
    assert plain_value(cell) == expected
    assert type(plain_value(cell)) is type(expected)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (b"x", r"data, row 2, key 'text': a value of type bytes cannot be stored as JSON \(leave the column out\)"),
        (float("inf"), "data, row 2: an infinite number"),
        ("\ud83d", r"data, row 2: half of a character \(\\ud83d\)"),
    ],
)
def test_a_cell_that_cannot_be_stored(cell: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(json_lines([{"text": "a"}, {"text": cell}], path="data"))
