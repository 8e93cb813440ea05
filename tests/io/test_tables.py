"""Rows of every format and compression, and the errors for broken files."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.lines import read_lines
from endtask.io.tables import find_column, read_rows

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".bz2": lambda content: bz2.compress(content, 1),
}
ROWS = [{"text": "first text", "label": "a"}, {"text": "zwölf Bäume 🌳", "label": "b"}]
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
# A lone carriage return inside a cell is written as one line end and read as another; it is tested apart.
csv_text = any_text.map(lambda text: text.replace("\r", ""))
tsv_text = any_text.map(lambda text: "".join(text.split()))


def as_csv(rows: list[dict[str, str]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_tsv(rows: list[dict[str, str]]) -> bytes:
    lines = ["\t".join(rows[0]), *("\t".join(row[name] for name in rows[0]) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def as_jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), file)
    return file.getvalue()


FORMATS: dict[str, tuple[Callable[[list[dict[str, str]]], bytes], list[int]]] = {
    ".csv": (as_csv, [2, 3]),
    ".tsv": (as_tsv, [2, 3]),
    ".jsonl": (as_jsonl, [1, 2]),
    ".ndjson": (as_jsonl, [1, 2]),
    ".parquet": (as_parquet, [1, 2]),
}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def error_of(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return caught.value


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_and_compression(tmp_path: Path, suffix: str, compression: str) -> None:
    encode, numbers = FORMATS[suffix]
    path = write(tmp_path, f"rows{suffix}{compression}", COMPRESS[compression](encode(ROWS)))
    counts: list[int] = []
    assert list(read_rows(path, counts.append)) == list(zip(numbers, ROWS, strict=True))
    assert sum(counts) == path.stat().st_size


@QUICK
@given(rows=st.lists(st.fixed_dictionaries({"text": csv_text, "label": csv_text}), min_size=1))
def test_csv_round_trip(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    assert [row for _, row in read_rows(write(tmp_path, "a.csv", as_csv(rows)))] == rows


@QUICK
@given(rows=st.lists(st.fixed_dictionaries({"text": tsv_text, "label": tsv_text}), min_size=1))
def test_tsv_round_trip(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    assert [row for _, row in read_rows(write(tmp_path, "a.tsv", as_tsv(rows)))] == rows


@QUICK
@given(rows=st.lists(st.dictionaries(any_text, any_text | st.integers() | st.none() | st.lists(any_text))))
def test_jsonl_round_trip(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert [row for _, row in read_rows(write(tmp_path, "a.jsonl", as_jsonl(rows)))] == rows


@QUICK
@given(lines=st.lists(any_text.map(lambda text: text.replace("\n", "").rstrip("\r")), min_size=1))
def test_lines_round_trip(tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path, "a.txt", "".join(line + "\r\n" for line in lines))
    expected = [lines[0].removeprefix("\ufeff"), *lines[1:]]
    assert list(read_lines(path)) == list(enumerate(expected, start=1))


@pytest.mark.parametrize(
    ("suffix", "content"), [(".csv", "text,label\r\nx,1\r\n"), (".tsv", "text\tlabel\r\nx\t1\r\n")]
)
def test_byte_order_mark_and_windows_line_ends(tmp_path: Path, suffix: str, content: str) -> None:
    path = write(tmp_path, f"a{suffix}", "\ufeff" + content)
    assert list(read_rows(path)) == [(2, {"text": "x", "label": "1"})]


def test_csv_quotes_and_embedded_newlines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"one\r\ntwo, ""three""",1\n\nx,2\n')
    assert list(read_rows(path)) == [
        (2, {"text": 'one\ntwo, "three"', "label": "1"}),
        (5, {"text": "x", "label": "2"}),
    ]


def test_tsv_keeps_stray_quotes_and_carriage_returns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'text\tlabel\n"one\rhalf\t1\nx\t"2"\n')
    assert [row for _, row in read_rows(path)] == [
        {"text": '"one\rhalf', "label": "1"},
        {"text": "x", "label": '"2"'},
    ]


def test_the_last_line_needs_no_end_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a"}\n\n   \n{"text": "b"}')
    assert list(read_rows(path)) == [(1, {"text": "a"}), (4, {"text": "b"})]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_an_empty_file_has_no_rows(tmp_path: Path, name: str) -> None:
    assert list(read_rows(write(tmp_path, name, ""))) == []


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_header_alone_has_no_rows(tmp_path: Path, name: str) -> None:
    assert list(read_rows(write(tmp_path, name, "text\n"))) == []


@pytest.mark.parametrize(
    ("name", "content", "row", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', 2, "not valid JSON"),
        ("a.jsonl", '{"a": 1}\n[1]\n', 2, "not a JSON object"),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}\n", 1, "not valid JSON"),
        ("a.jsonl", "[" * 100_000 + "\n", 1, "not valid JSON"),
        ("a.jsonl", '{"a": 1}\n{"a": "\\ud83d"}\n', 2, r"half of a character \(\\ud83d\)"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", 3, "3 cells where the header has 2"),
        ("a.csv", 'a,b\n1,"2\n3,4\n', 2, "not valid CSV"),
        ("a.csv", 'a,b\n"1"x,2\n', 2, "not valid CSV"),
        ("a.csv", 'a,b\n"1\n2",3\n4\n', 4, "1 cell where the header has 2"),
        ("a.csv", "a\rb\n1;2\n", 1, "not valid CSV"),  # found by atheris: no comma, so that the delimiter is guessed
        ("a.csv", "a,b,a\n1,2,3\n", 1, "two columns are named 'a'"),
        ("a.csv", "\na,b\n1,2\n", 1, "must name the columns"),
        ("a.tsv", "a\tb\n1\n", 2, "1 cell where the header has 2"),
        ("a.tsv", "a\ta\n1\t2\n", 1, "two columns are named 'a'"),
        ("a.tsv", b"a\tb\n1\t\xff\n", 2, r"not valid UTF-8 \(byte 3 of the line\)"),
        ("a.csv", b"a,b\n1,2\n\xe4,2\n", 3, r"not valid UTF-8 \(byte 1 of the line\)"),
        ("a.jsonl", b'{"a": 1}\n{"a": "\xc3("}\n', 2, "not valid UTF-8"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16") + b"\x00", 3, "not valid UTF-16"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, name: str, content: str | bytes, row: int, message: str) -> None:
    error = error_of(write(tmp_path, name, content))
    assert error.row == row
    assert re.search(message, str(error))


def test_a_whole_surrogate_pair_is_one_character(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"a": "\\ud83c\\udf33"}\n')
    assert list(read_rows(path)) == [(1, {"a": "🌳"})]


def noisy_rows(count: int) -> list[dict[str, str]]:
    """Rows that compress badly, so that half the bytes hold about half the rows."""
    source = random.Random(0)
    return [{"text": source.randbytes(100).hex()} for _ in range(count)]


@pytest.mark.parametrize("compression", [".gz", ".zst", ".xz", ".bz2"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_cut_off_file_names_the_row_reached(tmp_path: Path, suffix: str, compression: str) -> None:
    encode, _ = FORMATS[suffix]
    whole = COMPRESS[compression](encode(noisy_rows(3000)))
    path = write(tmp_path, f"a{suffix}{compression}", whole[: len(whole) // 2])
    reached = [0]
    with pytest.raises(InputError, match="the file is cut off") as caught:
        reached.extend(number for number, _ in read_rows(path))
    assert 400 < reached[-1] < 2600
    assert caught.value.row == reached[-1] + 1


@pytest.mark.parametrize("compression", [".gz", ".zst", ".xz", ".bz2"])
def test_damage_in_the_middle_is_never_passed_over(tmp_path: Path, compression: str) -> None:
    content = bytearray(COMPRESS[compression](as_jsonl(noisy_rows(3000))))
    if compression == ".zst":
        compressor = zstandard.ZstdCompressor(write_checksum=True)
        content = bytearray(compressor.compress(as_jsonl(noisy_rows(3000))))
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    error = error_of(write(tmp_path, f"a.jsonl{compression}", bytes(content)))
    assert error.row is not None
    assert error.row > 100


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not Parquet at all", as_parquet(ROWS)[:-20]])
@pytest.mark.parametrize("compression", ["", ".zst"])
def test_parquet_garbage(tmp_path: Path, content: bytes, compression: str) -> None:
    error = error_of(write(tmp_path, f"a.parquet{compression}", COMPRESS[compression](content)))
    assert "not a readable Parquet file" in str(error)


def test_parquet_damage_inside_the_data(tmp_path: Path) -> None:
    content = bytearray(as_parquet(noisy_rows(3000)))
    content[2000:3000] = bytes(1000)
    assert "not" in str(error_of(write(tmp_path, "a.parquet", bytes(content))))


def test_parquet_with_broken_utf8(tmp_path: Path) -> None:
    texts = arrow.array([b"fine", b"\xff\xfe"], arrow.binary()).view(arrow.string())
    parquet.write_table(arrow.table({"text": texts}), tmp_path / "a.parquet")
    assert "not valid UTF-8" in str(error_of(tmp_path / "a.parquet"))


def test_parquet_cut_off_outside(tmp_path: Path) -> None:
    whole = gzip.compress(as_parquet(ROWS))
    error = error_of(write(tmp_path, "a.parquet.gz", whole[:-20]))
    assert "the file is cut off" in str(error)


def test_missing_and_unknown_files(tmp_path: Path) -> None:
    assert "no such file" in str(error_of(tmp_path / "absent.csv"))
    assert "no such file" in str(error_of(tmp_path / "absent.parquet"))
    assert "known: .csv, .jsonl, .ndjson, .parquet, .tsv" in str(error_of(write(tmp_path, "a.doc", b"")))


def test_find_column() -> None:
    columns = ["id", "body", "text"]
    assert find_column(columns, None, ("text", "body"), path="a.csv", role="text") == "text"
    assert find_column(columns, "body", ("text",), path="a.csv", role="text") == "body"
    assert find_column(columns, None, ("content",), path="a.csv", role="text") is None
    with pytest.raises(InputError, match=r"a\.csv: no column 'txt' for the text \(did you mean 'text'\?\)"):
        find_column(columns, "txt", ("text",), path="a.csv", role="text")
