"""A selection table is read as it was written, in parts or as a whole, and is complete or absent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.io import selection_table
from endtask.io.selection_table import (
    SelectedTexts,
    read_batches,
    read_selection,
    read_statistics,
    selection_batch,
    write_batches,
    write_selection,
)
from endtask.records import Document, Selected

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DOCUMENTS = st.builds(Document, TEXT, TEXT, TEXT, st.none() | TEXT, st.none() | TEXT)
COUNTS = st.integers(0, 2**62)
ROWS = st.lists(
    st.builds(
        Selected,
        DOCUMENTS,
        COUNTS,
        COUNTS,
        st.floats(allow_nan=False),
        COUNTS,
        st.lists(TEXT, max_size=4).map(tuple),
        TEXT,
    ),
    max_size=12,
)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def passage(number: int) -> Selected:
    return Selected(Document(f"d{number}", f"text {number}", "s"), number, 1, 0.5, 1, ("e",), "why")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_table, "_ROWS_PER_GROUP", 5)


@given(rows=ROWS)
@same_folder
def test_round_trip(tmp_path: Path, rows: list[Selected]) -> None:
    path = tmp_path / "s.parquet"
    assert write_selection(path, iter(rows)) == len(rows)
    assert list(read_selection(path)) == rows
    assert list(SelectedTexts(path)) == [item.document.text for item in rows]


@given(rows=ROWS, data=st.data())
@same_folder
def test_marked_rows_only(tmp_path: Path, rows: list[Selected], data: st.DataObject) -> None:
    write_selection(tmp_path / "s.parquet", rows)
    markers = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = list(read_selection(tmp_path / "s.parquet", np.asarray(markers, dtype=bool)))
    assert kept == [item for item, mark in zip(rows, markers, strict=True) if mark]


@given(rows=ROWS)
@same_folder
def test_figures(tmp_path: Path, rows: list[Selected]) -> None:
    write_selection(tmp_path / "s.parquet", rows)
    statistics = read_statistics(tmp_path / "s.parquet")
    assert statistics.rank.tolist() == [item.rank for item in rows]
    assert statistics.score.tolist() == [item.score for item in rows]
    assert statistics.bytes.tolist() == [len(item.document.text.encode()) for item in rows]
    assert statistics.bytes.dtype == np.int64


def test_many_row_groups_and_several_passes(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    rows = [passage(number) for number in range(23)]
    assert write_selection(path, rows) == 23
    assert parquet.ParquetFile(path).num_row_groups == 5
    assert list(read_selection(path)) == rows
    texts = SelectedTexts(path)
    assert list(texts) == list(texts) == [item.document.text for item in rows]


def batch_of(numbers: range) -> Any:
    return selection_batch(
        [passage(number).document for number in numbers],
        position=list(numbers),
        rank=[1] * len(numbers),
        score=[0.5] * len(numbers),
        matched_count=[1] * len(numbers),
        matched_queries=[("e",)] * len(numbers),
        reason=["why"] * len(numbers),
    )


@given(sizes=st.lists(st.integers(0, 13), max_size=6))
@same_folder
def test_batches_of_any_size_give_the_same_rows_in_groups_that_are_not_small(tmp_path: Path, sizes: list[int]) -> None:
    path = tmp_path / "s.parquet"
    ends = np.cumsum([0, *sizes]).tolist()
    batches = [batch_of(range(start, end)) for start, end in pairwise(ends)]
    assert write_batches(path, iter(batches)) == sum(sizes)
    assert list(read_selection(path)) == [passage(number) for number in range(sum(sizes))]
    assert parquet.ParquetFile(path).num_row_groups <= 2 * sum(sizes) // 5 + 1


def test_large_texts_close_a_group_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_table, "_BYTES_PER_GROUP", 1000)
    rows = [Selected(Document(str(number), "x" * 600, "s"), number, 1, 0.5, 0, (), "why") for number in range(4)]
    write_selection(tmp_path / "s.parquet", rows)
    assert parquet.ParquetFile(tmp_path / "s.parquet").num_row_groups == 2
    assert list(read_selection(tmp_path / "s.parquet")) == rows


def test_columns_are_read_alone_and_groups_without_kept_rows_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    write_selection(path, map(passage, range(23)))
    kept = np.zeros(23, dtype=bool)
    kept[[7, 9, 22]] = True
    batches = list(read_batches(path, kept, ["id", "position"]))
    assert [batch.to_pylist() for batch in batches] == [
        [{"id": "d7", "position": 7}, {"id": "d9", "position": 9}],
        [{"id": "d22", "position": 22}],
    ]


def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Selected]:
        yield from (passage(number) for number in range(7))
        raise RuntimeError("the corpus broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        write_selection(tmp_path / "s.parquet", broken())
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_middle_leaves_the_old_table(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    write_selection(path, [passage(1)])
    with pytest.raises(ZeroDivisionError):
        write_selection(path, (passage(1 // (3 - number)) for number in range(5)))
    assert list(read_selection(path)) == [passage(1)]


KILLED = """
import os, signal, sys
from pathlib import Path
from endtask.io import selection_table
from endtask.records import Document, Selected
selection_table._ROWS_PER_GROUP = 5
def rows():
    for number in range(20):
        if number == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        yield Selected(Document(f"d{number}", "text", "s"), number, 1, 0.5, 1, ("e",), "why")
selection_table.write_selection(Path(sys.argv[1]), rows())
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_a_killed_writer_leaves_no_table(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert all(left.name.startswith(".") and left.suffix == ".tmp" for left in tmp_path.iterdir())
    write_selection(path, [passage(3)])
    assert list(read_selection(path)) == [passage(3)]
