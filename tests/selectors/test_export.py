"""A selection is exported and imported again: the same passages in the same order, in every format."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.atomic import write_text
from endtask.io.run_layout import SELECTION, SETTINGS_FILE
from endtask.io.selection_table import read_selection, write_selection
from endtask.records import Document, Selected
from endtask.selectors.export import export_selection
from endtask.selectors.imported import ImportedRows

FORMS = ["s.jsonl", "s.csv", "s.parquet", "s.jsonl.gz", "s.csv.zst", "s.parquet.zst", "s.jsonl.xz"]
NAMES = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\r\n",'), min_size=1, max_size=8)
TEXTS = NAMES.filter(str.strip)
ROWS = st.lists(
    st.builds(
        Selected,
        st.builds(Document, NAMES, TEXTS, NAMES, st.none() | NAMES, st.none() | NAMES),
        st.integers(0, 2**62),
        st.integers(1, 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(0, 9),
        st.lists(NAMES, max_size=3).map(tuple),
        NAMES,
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda item: item.document.id.replace("\r", ""),
)
PASSAGES = [
    Selected(Document("wiki/1", 'a "quoted", cell\nof two lines', "wiki", "T", "CC0"), 3, 2, 1.5, 1, ("e1",), "why"),
    Selected(Document("wiki/2", "plain é", "wiki"), 9, 1, 2.5, 2, ("e2", "e3"), "why"),
]


def write_run(folder: Path, selected: list[Selected]) -> Path:
    (folder / "select").mkdir(parents=True, exist_ok=True)
    write_text(folder / SETTINGS_FILE, "")
    write_selection(folder / "select" / SELECTION, selected)
    return folder


@pytest.mark.parametrize("name", FORMS)
@given(rows=ROWS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path: Path, name: str, rows: list[Selected]) -> None:
    target = tmp_path / name
    target.unlink(missing_ok=True)
    counts = export_selection(write_run(tmp_path / "run", rows), target, raw_cells=True)
    texts = [item.document.text for item in rows]
    assert counts == {"file": str(target), "passages": len(rows), "bytes": sum(len(text.encode()) for text in texts)}
    back = list(ImportedRows(target))
    if "csv" in name:
        cells = [(item.document.id, item.document.text, item.rank) for item in back]
        assert cells == [(one_line_end(item.document.id), one_line_end(item.document.text), item.rank) for item in rows]
    else:
        assert [(item.document, item.rank, item.score) for item in back] == [
            (item.document, item.rank, item.score) for item in rows
        ]


def one_line_end(text: str) -> str:
    """CSV is read line by line, whatever the lines end with."""
    return re.sub(r"\r+\n", "\n", text)


def test_csv_is_the_authors_form(tmp_path: Path) -> None:
    export_selection(write_run(tmp_path / "run", PASSAGES), tmp_path / "selected.csv")
    with open(tmp_path / "selected.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["text", "id", "rank"],
            ['a "quoted", cell\nof two lines', "wiki/1", "1"],
            ["plain é", "wiki/2", "0"],
        ]


def test_jsonl_has_all_columns(tmp_path: Path) -> None:
    export_selection(write_run(tmp_path / "run", PASSAGES), tmp_path / "s.jsonl.gz")
    first, second = map(json.loads, gzip.decompress((tmp_path / "s.jsonl.gz").read_bytes()).decode().splitlines())
    assert first == {
        "id": "wiki/1",
        "source": "wiki",
        "title": "T",
        "license": "CC0",
        "text": 'a "quoted", cell\nof two lines',
        "position": 3,
        "rank": 2,
        "score": 1.5,
        "matched_count": 1,
        "matched_queries": ["e1"],
        "reason": "why",
    }
    assert second["title"] is None


def test_parquet_is_the_table_itself(tmp_path: Path) -> None:
    export_selection(write_run(tmp_path / "run", PASSAGES), tmp_path / "s.parquet")
    assert list(read_selection(tmp_path / "s.parquet")) == PASSAGES


def test_an_empty_selection_has_a_header(tmp_path: Path) -> None:
    assert export_selection(write_run(tmp_path / "run", []), tmp_path / "s.csv")["passages"] == 0
    assert (tmp_path / "s.csv").read_text() == "text,id,rank\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("s.json", "s.json: unknown kind of file (did you mean '.jsonl'?)"),
        ("s.xlsx", "s.xlsx: unknown kind of file (known: .jsonl, .csv, .parquet, or those .gz .zst .xz .bz2)"),
        ("s.tsv", "s.tsv: unknown kind of file (did you mean '.csv'?)"),
        ("s", "s: unknown kind of file (known:"),
        ("absent/s.csv", "absent: no such folder"),
        ("there.csv", "there.csv: the file exists and was left as it is (choose another name)"),
    ],
)
def test_refused_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", PASSAGES)
    Path("there.csv").write_text("mine")
    with pytest.raises(InputError) as caught:
        export_selection(Path("run"), Path(target))
    assert str(caught.value).startswith(said)
    assert Path("there.csv").read_text() == "mine"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run", "there.csv"]


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.zst", "s.csv.gz", "s.parquet"])
def test_a_command_that_was_killed_at_its_end_can_be_repeated(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run", PASSAGES)
    target, left = tmp_path / name, tmp_path / f".{name}.999999999.tmp"
    left.write_text("half")
    counts = export_selection(tmp_path / "run", target)
    assert not left.exists()
    before = target.stat().st_mtime_ns
    assert export_selection(tmp_path / "run", target) == counts
    assert target.stat().st_mtime_ns == before
    target.write_bytes(target.read_bytes()[:-20])
    with pytest.raises(InputError, match="the file exists"):
        export_selection(tmp_path / "run", target)


def test_no_run_and_no_selection_yet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run here"):
        export_selection(tmp_path / "absent", tmp_path / "s.csv")
    write_text(tmp_path / SETTINGS_FILE, "")
    with pytest.raises(InputError, match=r"no selection here yet \(make it first: endtask run .* --until select\)"):
        export_selection(tmp_path, tmp_path / "s.csv")
    assert [entry.name for entry in tmp_path.iterdir()] == [SETTINGS_FILE]
