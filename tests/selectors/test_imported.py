"""Imported selections: every format, usual columns, budget by rank, contamination filter, and clear errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import zstandard

from endtask.config import SelectSettings
from endtask.errors import InputError
from endtask.records import Document, Selected
from endtask.selectors.imported import ImportedRows
from tests.selectors.candidates import run_select, write_retrieved

ROWS = [
    {"text": "third best", "id": "x", "rank": 2},
    {"text": 'the best, by "far"\nand wide', "id": "y", "rank": 0},
    {"text": "second béßt", "id": "z", "rank": 1},
    {"text": "as good as the second", "id": "w", "rank": 1},
]


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    kind = path.name.split(".")[1]
    if kind == "parquet":
        parquet.write_table(arrow.Table.from_pylist(rows), path)
    elif kind == "csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        if kind == "tsv":
            cells = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
            lines = ["\t".join(cell).replace("\n", " ") for cell in cells]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if path.suffix == ".zst":
        path.write_bytes(zstandard.compress(path.read_bytes()))
    return path


def import_from(path: Path, **values: Any) -> tuple[dict[str, Any], list[Selected]]:
    folder = write_retrieved(path.parent / "retrieve", [])
    settings = {"corpus_bytes": 0, "budget": None, **values}
    return run_select(folder, name="imported", path=str(path), **settings)


@pytest.mark.parametrize(
    "name", ["s.jsonl", "s.csv", "s.tsv", "s.parquet", "s.jsonl.zst", "s.csv.zst", "s.parquet.zst"]
)
def test_every_kind_of_file(tmp_path: Path, name: str) -> None:
    path = write_table(tmp_path / name, ROWS)
    counts, kept = import_from(path)
    texts = [str(row["text"]) for row in ROWS]
    assert [item.document.text for item in kept] == [
        text.replace("\n", " ") if "tsv" in name else text for text in texts
    ]
    assert [item.document.id for item in kept] == ["x", "y", "z", "w"]
    assert [item.rank for item in kept] == [3, 1, 2, 2]  # theirs count from 0
    assert [item.position for item in kept] == [0, 1, 2, 3]
    assert kept[0].reason == f"imported: rank 2 in {name}"
    assert {item.document.source for item in kept} == {"s"}
    size = sum(len(text.encode()) for text in texts)
    assert counts == {
        "passages": 4,
        "bytes": size,
        "share_of_corpus": 0.0,
        "rows": 4,
        "empty": 0,
        "dropped_by_contamination_filter": 0,
    }


@pytest.mark.parametrize(
    ("budget", "ids"), [("1passage", ["y"]), ("3passages", ["y", "z", "w"]), ("39B", ["y"]), ("40B", ["y", "z"])]
)
def test_a_budget_takes_the_best_ranked_and_keeps_the_order_of_the_file(
    tmp_path: Path, budget: str, ids: list[str]
) -> None:
    _, kept = import_from(write_table(tmp_path / "s.csv", ROWS), budget=budget)
    assert [item.document.id for item in kept] == ids


def test_without_ranks_the_file_s_order_counts(tmp_path: Path) -> None:
    path = write_table(tmp_path / "s.jsonl", [{"text": f"text {number}"} for number in range(5)])
    _, kept = import_from(path, budget="2passages")
    assert [item.document.text for item in kept] == ["text 0", "text 1"]
    assert [item.rank for item in kept] == [1, 2]
    assert [item.document.id for item in kept] == ["s/s.jsonl#1", "s/s.jsonl#2"]
    assert kept[1].reason == "imported: row 2 of s.jsonl"


def test_a_share_is_of_the_corpus_where_there_is_one(tmp_path: Path) -> None:
    counts, kept = import_from(write_table(tmp_path / "s.csv", ROWS), budget="10%", corpus_bytes=300)
    assert [item.document.id for item in kept] == ["y"]
    assert counts["share_of_corpus"] == counts["bytes"] / 300


def test_all_columns_come_along(tmp_path: Path) -> None:
    row = {"id": 7, "text": "t", "source": "wiki", "title": "T", "license": "CC0", "score": "2.5", "rank": 3.0}
    _, (item,) = import_from(write_table(tmp_path / "s.jsonl", [row]))
    assert item.document == Document("7", "t", "wiki", "T", "CC0")
    assert (item.rank, item.score, item.matched_count, item.matched_queries) == (4, 2.5, 0, ())


def test_usual_names_of_the_text_column(tmp_path: Path) -> None:
    _, (item,) = import_from(write_table(tmp_path / "s.csv", [{"abstract": "found"}]))
    assert item.document.text == "found"


def test_equal_ids_are_told_apart(tmp_path: Path) -> None:
    path = write_table(tmp_path / "s.csv", [{"text": f"text {number}", "id": "same"} for number in range(3)])
    assert [item.document.id for item in import_from(path)[1]] == ["same", "same~3", "same~4"]


def test_empty_and_guarded_texts_are_dropped_and_counted_before_the_budget(tmp_path: Path) -> None:
    path = write_table(tmp_path / "s.jsonl", [{"text": text} for text in ["a test text", " ", "first", "second", ""]])
    counts, kept = import_from(path, budget="1passage", is_contaminated=lambda text: "test" in text)
    assert [item.document.text for item in kept] == ["first"]
    assert (counts["rows"], counts["empty"], counts["dropped_by_contamination_filter"]) == (5, 2, 1)


def test_columns_that_are_not_used_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_table(tmp_path / "s.csv", [{"text": "t", "url": "u", "scroe": "1"}])
    import_from(path)
    assert capsys.readouterr().err == f"{path}: columns that are not used: url, scroe\n"


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no text column": (
        [{"txet": "t", "id": 1}],
        "key 'select.path': no column for the text among txet, id (rename 'txet' to",
    ),
    "nothing like it": (
        [{"a": "t", "b": 1}],
        "key 'select.path': no column for the text among a, b (known: text, content",
    ),
    "a later row without it": ([{"text": "t"}, {"txt": "t"}], "row 2: no column 'text' (did you mean 'txt'?)"),
    "a null text": ([{"text": "t"}, {"text": None}], "row 2: column 'text' is null, not a text"),
    "a number for a text": ([{"text": 5}], "row 1: column 'text' is of type int, not a text"),
    "a list for an id": ([{"text": "t", "id": [1]}], "row 1, key 'id': must be a text or a number, got [1]"),
    "half a rank": ([{"text": "t", "rank": 1.5}], "row 1, key 'rank': must be a whole number from 0 up, got 1.5"),
    "a rank below 0": ([{"text": "t", "rank": -1}], "row 1, key 'rank': must be a whole number from 0 up, got -1"),
    "a rank of words": ([{"text": "t", "rank": "best"}], "row 1, key 'rank': must be a whole number from 0 up, got 'b"),
    "a truth for a rank": ([{"text": "t", "rank": True}], "row 1, key 'rank': must be a whole number"),
    "an endless rank": ([{"text": "t", "rank": 10**400}], "row 1, key 'rank': must be a whole number"),
    "a rank of 0 in our own": (
        [{"text": "t", "rank": 0, "matched_count": 1}],
        "row 1, key 'rank': must be a whole number from 1 up, got 0",
    ),
    "a rank too few": ([{"text": "t", "rank": 1}, {"text": "t"}], "row 2, key 'rank': has no rank, unlike the rows"),
    "a rank too many": ([{"text": "t"}, {"text": "t", "rank": 1}], "row 2, key 'rank': has a rank, unlike the rows"),
    "a score of words": ([{"text": "t", "score": "high"}], "row 1, key 'score': must be a finite number, got 'high'"),
    "no number for a score": ([{"text": "t", "score": float("nan")}], "row 1, key 'score': must be a finite number"),
    "no rows": ([], "key 'select.path': the file holds no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_rows_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    rows, line = REFUSED[case]
    path = write_table(tmp_path / "s.jsonl", rows)
    with pytest.raises(InputError) as caught:
        import_from(path)
    assert str(caught.value).startswith(f"{path}, {line}")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "retrieve" / "out").iterdir()) == []


def test_texts_that_are_all_empty_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no passage was selected \(no row holds an uncontaminated text"):
        import_from(write_table(tmp_path / "s.jsonl", [{"text": " "}]))


@pytest.mark.parametrize("content", [b'{"text": "caf\xe9"}\n', b"nonsense\n"])
def test_broken_files_name_the_row(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + content)
    with pytest.raises(InputError, match=r"s\.jsonl, row 2: not valid"):
        import_from(path)


def test_unknown_kinds_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.doc").write_text("x")
    with pytest.raises(InputError, match=r"s\.doc: unknown kind of file \(known: \.csv"):
        import_from(tmp_path / "s.doc")


def test_a_second_pass_counts_anew(tmp_path: Path) -> None:
    rows = ImportedRows(write_table(tmp_path / "s.csv", ROWS))
    assert list(rows) == list(rows)
    assert rows.read == 4


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    path = write_table(tmp_path / "s.csv", ROWS)
    settings = SelectSettings(name="imported", path=str(path))
    first = settings.part.external_digest()
    path.touch()
    assert settings.part.external_digest() == first
    write_table(path, ROWS[:2])
    assert settings.part.external_digest() != first
