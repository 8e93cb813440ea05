"""Excel, JSON lists, CoNLL, guessed delimiters and encodings, and reading on after errors."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.lines import read_lines
from endtask.io.rows.conll import is_conll
from endtask.io.rows.delimited import DELIMITERS
from endtask.io.tables import read_rows

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
plain_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path, **options)]


def workbook(path: Path, rows: list[list[Any]], **others: list[list[Any]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for title, cells in others.items():
        sheet = book.create_sheet(title)
        for row in cells:
            sheet.append(row)
    book.save(path)
    return path


cells = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | plain_text.filter(lambda text: text[:1] != "=")


@settings(QUICK, max_examples=20)
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=8))
def test_excel_round_trip(tmp_path: Path, rows: list[tuple[Any, Any]]) -> None:
    path = workbook(tmp_path / "a.xlsx", [["text", "label"], *map(list, rows)])
    numbered = [
        (number, {"text": text or (None if text == "" else text), "label": label or (None if label == "" else label)})
        for number, (text, label) in enumerate(rows, start=2)
        if not (text in (None, "") and label in (None, ""))
    ]
    assert list(read_rows(path)) == numbered


def test_excel_reads_the_first_sheet_and_names_the_others(tmp_path: Path) -> None:
    import datetime

    day = datetime.datetime(2024, 5, 1)
    path = workbook(tmp_path / "a.xlsx", [[], ["text", "day"], ["one", day], [], ["two"]], more=[["x"]])
    notes: list[str] = []
    assert list(read_rows(path, note=notes.append)) == [
        (3, {"text": "one", "day": "2024-05-01T00:00:00"}),
        (5, {"text": "two", "day": None}),
    ]
    assert notes == ["a.xlsx: sheet 'Sheet' was read, and not 'more'"]


@pytest.mark.parametrize(
    ("rows", "row", "message"),
    [
        ([["a", "a"], [1, 2]], 1, "two columns are named 'a'"),
        ([["a"], [1, 2]], 2, "cell 2 is in a column without a name"),
    ],
)
def test_broken_sheets_are_named(tmp_path: Path, rows: list[list[Any]], row: int, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        rows_of(workbook(tmp_path / "a.xlsx", rows))
    assert caught.value.row == row


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut off"])
def test_excel_garbage(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("openpyxl")
    with pytest.raises(InputError, match=r"a\.xlsx: not a readable Excel file"):
        rows_of(write(tmp_path, "a.xlsx", content))


def test_excel_of_unknown_compression(tmp_path: Path) -> None:
    content = bytearray(workbook(tmp_path / "a.xlsx", [["text"], ["a"]]).read_bytes())
    for mark, method in ((b"PK\1\2", 10), (b"PK\3\4", 8)):
        for found in re.finditer(re.escape(mark), bytes(content)):
            content[found.start() + method] = 99
    with pytest.raises(
        InputError, match=r"b\.xlsx: not a readable Excel file: That compression method is not supported"
    ):
        rows_of(write(tmp_path, "b.xlsx", bytes(content)))


def test_excel_cut_off(tmp_path: Path) -> None:
    whole = workbook(tmp_path / "a.xlsx", [["text"], *([str(number)] for number in range(500))]).read_bytes()
    with pytest.raises(InputError, match="not a readable Excel file"):
        rows_of(write(tmp_path, "b.xlsx", whole[: len(whole) // 2]))


def test_the_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"needs the package openpyxl \(pip install 'endtask\[excel\]'\)"):
        rows_of(write(tmp_path, "a.xlsx", b""))


json_rows = st.lists(st.dictionaries(plain_text, plain_text | st.integers() | st.none() | st.lists(plain_text)))


@QUICK
@given(rows=json_rows, indent=st.sampled_from([None, 2]), wrapped=st.booleans(), ascii_only=st.booleans())
def test_json_round_trip(
    tmp_path: Path, rows: list[dict[str, Any]], indent: int | None, wrapped: bool, ascii_only: bool
) -> None:
    value = {"version": "1", "data": rows, "names": ["a"]} if wrapped and rows else rows
    path = write(tmp_path, "a.json", json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert list(read_rows(path)) == list(enumerate(rows, start=1))


@QUICK
@given(rows=st.lists(st.dictionaries(plain_text, plain_text, min_size=1), min_size=1))
def test_json_lines_in_a_json_file(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    assert rows_of(write(tmp_path, "a.json", "\n".join(map(json.dumps, rows)))) == rows


@pytest.mark.parametrize(
    ("content", "row", "message"),
    [
        ('[{"a": 1},\n{"a": }]', 2, "not valid JSON: Expecting value"),
        ('[{"a": 1}, 5]', 2, "not a JSON object but a number"),
        ('[{"a": "\\ud83d"}]', 1, r"half of a character \(\\ud83d\)"),
        ('{"train": [{"a": 1}], "test": [{"a": 2}]}', None, r"several lists of objects \('train', 'test'\)"),
        ('{"a": {"b": 1}}', None, "no list of JSON objects"),
        ('"text"', None, "no list of JSON objects"),
        ("[" * 100_000, None, "not valid JSON"),
    ],
)
def test_broken_json_is_named(tmp_path: Path, content: str, row: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        rows_of(write(tmp_path, "a.json", content))
    assert caught.value.row == row


@QUICK
@given(
    delimiter=st.sampled_from(list(DELIMITERS)),
    rows=st.lists(st.tuples(plain_text, plain_text, st.integers().map(str)), min_size=1, max_size=10),
)
def test_the_delimiter_of_csv_is_guessed(tmp_path: Path, delimiter: str, rows: list[tuple[str, ...]]) -> None:
    header = ("text", "label", "number")
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])
    notes: list[str] = []
    path = write(tmp_path, "a.csv", file.getvalue())
    assert rows_of(path, note=notes.append) == [dict(zip(header, row, strict=True)) for row in rows]
    assert notes == ([] if delimiter == "," else [f"a.csv: cells are separated by {DELIMITERS[delimiter]}"])


def test_a_single_column_needs_no_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text\none; two\nthree | four; five\n")
    assert rows_of(path) == [{"text": "one; two"}, {"text": "three | four; five"}]


def test_many_lines_before_the_guess_ends(tmp_path: Path) -> None:
    cells_of = [f'"line {number}\nof two"' for number in range(400)]
    path = write(tmp_path, "a.csv", "text;label\n" + "".join(f"{cell};x\n" for cell in cells_of))
    rows = rows_of(path)
    assert [row["text"] for row in rows] == [cell.strip('"') for cell in cells_of]


letters = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"), max_size=20)


@QUICK
@given(lines=st.lists(letters, min_size=1), encoding=st.sampled_from(["utf-16", "utf-32", "utf-8-sig"]))
def test_marked_encodings_round_trip(tmp_path: Path, lines: list[str], encoding: str) -> None:
    path = write(tmp_path, "a.txt", "\n".join([*lines, "end"]).encode(encoding))
    assert [line for _, line in read_lines(path)] == [*lines, "end"]


WESTERN = "text,label\nWir grüßen die Bäume für heute – ja,a\nGarçon mangé à l'hôtel du cœur,b\n"


def test_windows_1252_is_guessed_and_named(tmp_path: Path) -> None:
    notes: list[str] = []
    path = write(tmp_path, "a.csv", WESTERN.encode("cp1252"))
    assert rows_of(path, note=notes.append) == rows_of(write(tmp_path, "b.csv", WESTERN))
    assert notes == [
        "a.csv is not UTF-8 and was read as Windows-1252; if letters with accents look wrong, save it as UTF-8"
    ]


def test_without_notes_nothing_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row 2: not valid UTF-8 \(byte 7 of the line\)"):
        rows_of(write(tmp_path, "a.csv", WESTERN.encode("cp1252")))


def test_a_file_with_lines_in_two_encodings_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text\ngrün\n".encode() + "grün\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"row 3: not valid UTF-8 \(byte 3 of the line\)"):
        rows_of(path, note=lambda line: None)


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ("text\nПривет, как дела\n".encode("cp1251"), None),
        ("text\nこんにちは世界\n".encode("shift-jis"), 2),
        (b"text\nbinary \xe9 \x00\x01\n", 2),
    ],
)
def test_other_encodings_are_errors(tmp_path: Path, content: bytes, row: int | None) -> None:
    with pytest.raises(InputError, match="neither UTF-8 nor Windows-1252") as caught:
        rows_of(write(tmp_path, "a.csv", content), note=lambda line: None)
    assert caught.value.row == row


word = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(
    lambda text: not text.startswith(("#", "-DOCSTART-"))
)
tag = st.sampled_from(["O", "B-place", "I-place"])
sentences = st.lists(st.lists(st.tuples(word, tag), min_size=1, max_size=6), min_size=1, max_size=6)


@QUICK
@given(sentences=sentences, separator=st.sampled_from([" ", "\t", " NN I-NP "]), blanks=st.integers(1, 3))
def test_conll_round_trip(tmp_path: Path, sentences: list[list[tuple[str, str]]], separator: str, blanks: int) -> None:
    texts = ["".join(f"{token}{separator}{label}\n" for token, label in sentence) for sentence in sentences]
    content = f"-DOCSTART-{separator}O\n\n" + ("\n" * blanks).join(texts)
    path = write(tmp_path, "a.conll", content)
    found = list(read_rows(path))
    assert [row for _, row in found] == [
        {"tokens": [token for token, _ in sentence], "tags": [label for _, label in sentence]} for sentence in sentences
    ]
    assert [content.split("\n")[number - 1].split(separator)[0] for number, _ in found] == [
        sentence[0][0] for sentence in sentences
    ]
    assert is_conll(path)


def test_conll_comments(tmp_path: Path) -> None:
    content = "# id a-1\tdomain=en\n# text = # 1\n#\tO\n1\tB-x\n"
    assert rows_of(write(tmp_path, "a.conll", content)) == [{"tokens": ["#", "1"], "tags": ["O", "B-x"]}]


@pytest.mark.parametrize(
    ("content", "row", "message"),
    [
        ("in O\nRome\n", 2, "1 column where earlier lines have 2"),
        ("in NN O\n\nRome B-place\n", 3, "2 columns where earlier lines have 3"),
        ("word\n", 1, "1 column"),
    ],
)
def test_broken_conll_is_named(tmp_path: Path, content: str, row: int, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        rows_of(write(tmp_path, "a.conll", content))
    assert caught.value.row == row


@pytest.mark.parametrize("content", ["text\tlabel\na\tO\n", "A text of two lines.\nIt ends O\n", "", "word\nword\n"])
def test_other_text_is_no_conll(tmp_path: Path, content: str) -> None:
    assert not is_conll(write(tmp_path, "a.txt", content))


@pytest.mark.parametrize(
    ("name", "content", "left", "skipped"),
    [
        ("a.jsonl", b'{"a": "1"}\n{"a": \n[1]\n{"a": "\xff"}\n{"a": "2"}\n', ["1", "2"], [2, 3, 4]),
        ("a.json", b'[{"a": "1"}, 7, {"a": "2"}]', ["1", "2"], [2]),
        ("a.csv", b'a,b\n1,x\n"3"x,4\n\xff,1\n5\n2,y\n', ["1", "2"], [3, 4, 5]),
        ("a.tsv", b"a\tb\n1\tx\n3\n2\ty\n", ["1", "2"], [3]),
        ("a.conll", b"1 O\n\n3\n3 O\n\n2 O\n", [["1"], ["2"]], [3]),
    ],
)
def test_reading_goes_on_after_an_error(
    tmp_path: Path, name: str, content: bytes, left: list[Any], skipped: list[int]
) -> None:
    errors: list[InputError] = []
    found = rows_of(write(tmp_path, name, content), on_error=errors.append)
    assert [row.get("a", row.get("tokens")) for row in found] == left
    assert [error.row for error in errors] == skipped
