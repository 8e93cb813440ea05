"""Rows with predictions as files: what is written is read back, and no cell is a formula."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.tables import read_rows
from endtask.serving.table_output import cell_text, check_output, escaped, table_writer

Rows = list[dict[str, Any]]
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
TABLES = st.lists(TEXT, min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, TEXT)), min_size=1, max_size=6)
)


def write(target: Path, rows: Rows, *, chunk: int = 2, raw_cells: bool = True) -> Path:
    target.unlink(missing_ok=True)
    with table_writer(target, raw_cells=raw_cells) as writer:
        for start in range(0, len(rows), chunk):
            writer([(number + 1, rows[number]) for number in range(start, min(start + chunk, len(rows)))])
    return target


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.jsonl", "out.parquet", "out.csv.gz", "out.jsonl.zst"])
@given(rows=TABLES)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, name: str, rows: Rows) -> None:
    # The readers take a byte order mark at the beginning of a file for what it is.
    rows = [{f"c{key}": value for key, value in row.items()} for row in rows]
    file = write(tmp_path_factory.getbasetemp() / name, rows)
    assert [row for _, row in read_rows(file)] == rows


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-cmd", "@sum", "\tx", "\rx", "=", "-", "--5", "-1-1", "+1 2"])
def test_formulas_begin_with_an_apostrophe(cell: str) -> None:
    assert escaped(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "a=b", "-1", "+2.5", "-.5e-3", "1=1", "'=x", " =x"])
def test_other_cells_stay(cell: str) -> None:
    assert escaped(cell) == cell


def test_cells_and_headings_of_csv_and_tsv_are_escaped_unless_raw(tmp_path: Path) -> None:
    rows = [{"=head": "@x", "b": -0.5, "c": None, "d": ["=", "a"]}]
    with open(write(tmp_path / "a.csv", rows, raw_cells=False), newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["'=head", "b", "c", "d"], ["'@x", "-0.5", "", '["=", "a"]']]
    assert write(tmp_path / "a.tsv", rows, raw_cells=False).read_text().startswith("'=head\tb")
    assert write(tmp_path / "b.csv", rows).read_text().startswith("=head,b")
    assert json.loads(write(tmp_path / "a.jsonl", rows, raw_cells=False).read_text())["=head"] == "@x"


def test_values_of_any_type(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 31)
    rows = [{"day": day, "nan": float("nan"), "yes": True, "none": None, "list": [1.5, None]}]
    assert json.loads(write(tmp_path / "a.jsonl", rows).read_text()) == {
        "day": "2026-01-31", "nan": None, "yes": True, "none": None, "list": [1.5, None],
    }  # fmt: skip
    table = parquet.read_table(write(tmp_path / "a.parquet", rows))
    assert table["day"].to_pylist() == [day]
    assert table.schema.field("none").type == "string"
    assert cell_text(float("inf")) == "inf"
    assert cell_text({"a": 1}) == '{"a": 1}'


def test_rows_may_leave_out_columns_but_not_add_any(tmp_path: Path) -> None:
    for name in ("a.csv", "a.tsv", "a.parquet"):
        rows: Rows = [{"a": "1", "b": "2"}, {"a": "3"}]
        found = [row for _, row in read_rows(write(tmp_path / name, rows))]
        assert found[1]["a"] == "3"
        assert not found[1]["b"]
        with pytest.raises(InputError, match=r"row 2: the row has a key 'c' that the first row does not have"):
            write(tmp_path / name, [{"a": "1"}, {"a": "1", "c": "2"}])
        assert not (tmp_path / name).exists()
    assert len(list(read_rows(write(tmp_path / "a.jsonl", [{"a": "1"}, {"c": "2"}])))) == 2


def test_what_a_format_cannot_hold_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a.tsv, row 2: a cell of TSV cannot hold a TAB or a line break"):
        write(tmp_path / "a.tsv", [{"a": "1"}, {"a": "two\nlines"}])
    with pytest.raises(InputError, match=r"a.parquet, row 2: a value has another type than those before"):
        write(tmp_path / "a.parquet", [{"a": 1}, {"a": "x"}], chunk=1)
    assert list(tmp_path.iterdir()) == []


def test_no_rows_give_an_empty_file(tmp_path: Path) -> None:
    assert write(tmp_path / "a.csv", []).read_bytes() == b""
    assert parquet.read_table(write(tmp_path / "a.parquet", [])).num_rows == 0


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("x")
    for name, said in {
        "there.csv": "the file exists and was left as it is",
        "a.xls": "unknown kind of file",
        "a.jsnl": r"did you mean '\.jsonl'",
        "a.parquet.gz": r"write a\.parquet",
        "absent/a.csv": "no such folder",
    }.items():
        with pytest.raises(InputError, match=said):
            check_output(tmp_path / name)
    assert (tmp_path / "there.csv").read_text() == "x"


def test_compressed_files_are_what_their_suffix_says(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv.gz", [{"a": "1"}])
    assert gzip.decompress(file.read_bytes()) == b"a\n1\n"
