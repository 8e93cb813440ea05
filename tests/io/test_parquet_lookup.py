"""Rows found in a table by one column, and the nearest spelling of a cell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.parquet_lookup import nearest_of, nearest_value, rows_where
from tests.hand_made_run import write_columns


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    asked: list[list[str] | None] = [["x", "y"], [], ["y", "y"], None, ["z"]]
    write_columns(path, id=["a", "b", "c", "d", "b"], asked=asked, number=[0, 1, 2, 3, 4])
    return path


def test_rows_by_a_cell(table: Path) -> None:
    assert [row["number"] for row in rows_where(table, "id", {"b"})] == [1, 4]
    assert [row["number"] for row in rows_where(table, "id", {"d", "a", "absent"})] == [0, 3]
    assert list(rows_where(table, "id", {"absent"})) == []
    assert list(rows_where(table, "id", set())) == []


def test_rows_by_what_a_list_holds(table: Path) -> None:
    assert [row["number"] for row in rows_where(table, "asked", {"y"})] == [0, 2]
    assert [row["number"] for row in rows_where(table, "asked", ["x", "z"])] == [0, 4]
    assert list(rows_where(table, "asked", {"absent"})) == []


def test_only_the_columns_asked_for(table: Path) -> None:
    assert list(rows_where(table, "id", {"c"}, ["number"])) == [{"number": 2}]
    assert list(rows_where(table, "id", {"c"})) == [{"id": "c", "asked": ["y", "y"], "number": 2}]


def test_the_rest_is_not_read_once_a_row_is_found(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = parquet.ParquetFile.read_row_group

    def watched(self: parquet.ParquetFile, group: int, **options: object) -> object:
        read.append(group)
        return original(self, group, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", watched)
    assert next(rows_where(table, "id", {"c"}))["number"] == 2
    assert read == [0, 1, 1]  # of three groups: two columns of ids, and the other columns of one


@given(
    cells=st.lists(st.lists(st.text("abc", max_size=2), max_size=3), min_size=1, max_size=12),
    wanted=st.sets(st.text("abc", max_size=2), max_size=3),
    size=st.integers(1, 12),
)
def test_equals_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]], wanted: set[str], size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "loop.parquet"
    lists = arrow.array(cells, arrow.list_(arrow.string()))
    names = ["".join(cell) for cell in cells]
    parquet.write_table(arrow.table({"lists": lists, "names": names}), path, row_group_size=size)
    holding = [name for cell, name in zip(cells, names, strict=True) if wanted & set(cell)]
    assert [row["names"] for row in rows_where(path, "lists", wanted)] == holding
    assert [row["names"] for row in rows_where(path, "names", wanted)] == [name for name in names if name in wanted]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("abstracts/p17", "abstracts/p17"),
        ("abstracts/p7", "abstracts/p17"),
        ("abstract/p17", "abstracts/p17"),
        ("p9", "books/p9"),
        ("abstracts/p3", "abstracts/p3#p1"),
        ("books/p", "books/p9"),
    ],
)
def test_nearest(tmp_path: Path, typed: str, meant: str) -> None:
    path = tmp_path / "table.parquet"
    write_columns(path, id=["books/p9", "abstracts/p17", "abstracts/p3#p1", "abstracts/p3#p2"])
    assert nearest_value(path, "id", typed) == meant


def test_nearest_of_nothing() -> None:
    assert nearest_of(arrow.array([], arrow.string()), "a") is None
    assert nearest_of(arrow.array(["b", "c"]), "") in {"b", "c"}
    assert nearest_of(arrow.array(["b", "c"]), "x") in {"b", "c"}


def test_nearest_among_very_many(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_columns(path, row_group_size=1000, id=[f"abstracts/{number:05}" for number in range(5000)])
    assert nearest_value(path, "id", "abstracts/x4321") in {f"abstracts/{ten}4321" for ten in range(5)}


def test_files_that_cannot_be_read(tmp_path: Path, table: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.parquet: no such file"):
        next(rows_where(tmp_path / "absent.parquet", "id", {"a"}))
    with pytest.raises(InputError, match=r"table\.parquet: no column 'name'"):
        next(rows_where(table, "name", {"a"}))
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"table\.parquet: not a readable Parquet file") as caught:
        next(rows_where(table, "id", {"a"}))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="not a readable Parquet file"):
        nearest_value(table, "id", "a")
