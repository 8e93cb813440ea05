"""Tasks read from files: formats, folders, columns, task types, new splits."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.config import ColumnSettings, TaskSettings
from endtask.records import Example
from endtask.task import Task
from endtask.task import task as task_module

Rows = Sequence[dict[str, Any]]

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def delimited(rows: Rows, **options: Any) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n", **options)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def parquet(rows: Rows) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


WRITE: dict[str, Callable[[Rows], bytes]] = {
    ".csv": delimited,
    ".tsv": lambda rows: delimited(rows, delimiter="\t"),
    ".jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode(),
    ".parquet": parquet,
}


def write(path: Path, rows: Rows) -> Path:
    """Write rows in the format and compression that the file name asks for."""
    compression = path.suffix if path.suffix in COMPRESS else ""
    form = Path(path.name.removesuffix(compression)).suffix
    path.write_bytes(COMPRESS[compression](WRITE[form](rows)))
    return path


def numbered(count: int, first: int = 0, **columns: Any) -> list[dict[str, Any]]:
    return [
        {"text": f"text number {number}", "label": "even" if number % 2 == 0 else "odd", **columns}
        for number in range(first, first + count)
    ]


@pytest.mark.parametrize("form", WRITE)
@pytest.mark.parametrize("compression", COMPRESS)
def test_folder_in_every_format_and_compression(tmp_path: Path, form: str, compression: str) -> None:
    for place, (name, count) in enumerate({"train": 20, "validation": 4, "test": 6}.items()):
        write(tmp_path / f"{name}{form}{compression}", numbered(count, first=100 * place))
    task = Task.read(tmp_path)
    assert (task.name, task.type, task.labels, task.notes) == (tmp_path.name, "text", ("even", "odd"), ())
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 20, "dev": 4, "test": 6}
    assert [row.text for row in task.dev] == [f"text number {number}" for number in range(100, 104)]
    first_row = 2 if form in (".csv", ".tsv") else 1
    assert (task.test[0].id, task.test[0].row) == (f"test-{first_row}", first_row)
    assert task.test[0].path == str(tmp_path / f"test{form}{compression}")


texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\0"), min_size=1).filter(
    str.strip
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    form=st.sampled_from([".csv", ".jsonl", ".parquet"]),
    rows=st.lists(st.fixed_dictionaries({"text": texts, "text_pair": texts}), min_size=3, max_size=20),
)
def test_texts_come_back_as_they_were_written(tmp_path: Path, form: str, rows: list[dict[str, str]]) -> None:
    labelled = [{**row, "label": f"class {number % 2}"} for number, row in enumerate(rows)]
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}{form}", labelled)
    try:
        task = Task.read(tmp_path)
    finally:
        for file in tmp_path.iterdir():
            file.unlink()
    assert task.type == "pair"
    assert [(row.text, row.text_pair, row.label) for row in task.dev] == [
        (row["text"], row["text_pair"], row["label"]) for row in labelled
    ]


def test_single_file_is_carved_into_three(tmp_path: Path) -> None:
    task = Task.read(write(tmp_path / "numbers.csv.gz", numbered(100)))
    assert task.name == "numbers"
    assert list(task.splits) == ["train", "dev", "test"]
    assert (len(task.train), len(task.dev), len(task.test)) == (80, 10, 10)
    assert {row.id for rows in task.splits.values() for row in rows} == {f"train-{row}" for row in range(2, 102)}
    expected = "no dev split given: 10 of 100 train rows carved off by group (equal texts without entity markers)"
    assert expected in task.notes


def test_carving_follows_the_seed_and_test_ignores_the_share_of_dev(tmp_path: Path) -> None:
    path = write(tmp_path / "numbers.jsonl", numbered(100))
    assert Task.read(path, seed=1).test == Task.read(path, seed=1).test != Task.read(path, seed=2).test
    other = Task.read(TaskSettings(path=str(path), dev_fraction=0.3), seed=1)
    assert other.test == Task.read(path, seed=1).test
    assert len(other.dev) == 30


def test_marked_copies_of_one_text_stay_in_one_split(tmp_path: Path) -> None:
    rows = [
        {
            "text": f"gene{number // 2} [[ x ]] << y >>" if number % 2 else f"gene{number // 2} << X >> [[ y ]]!",
            "label": "ab"[number // 2 % 2],
        }
        for number in range(100)
    ]
    task = Task.read(write(tmp_path / "marked.jsonl", rows))
    genes = [{row.text.split()[0] for row in rows} for rows in task.splits.values()]
    assert sum(map(len, genes)) == 50
    assert not genes[0] & genes[1]


def test_carved_split_shares_nothing_with_a_given_one(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", numbered(100))
    write(tmp_path / "test.jsonl", numbered(90))
    for seed in range(5):
        task = Task.read(tmp_path, seed=seed)
        assert len(task.dev) == 10
        assert not {row.text for row in task.dev} & {row.text for row in task.test}


def test_named_group_column_rules_the_carving(tmp_path: Path) -> None:
    rows = [{**row, "doc": number // 10} for number, row in enumerate(numbered(100))]
    path = write(tmp_path / "docs.jsonl", rows)
    task = Task.read(TaskSettings(path=str(path), columns=ColumnSettings(group="doc")))
    assert {row.group for row in task.dev}.isdisjoint(row.group for row in task.train)
    assert len(task.dev) == len(task.test) == 10
    assert any("group column" in note for note in task.notes)


def test_test_split_may_be_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "numbers.jsonl", numbered(50))
    task = Task.read(TaskSettings(path=str(path), test_fraction=0))
    assert list(task.splits) == ["train", "dev"]
    assert task.test == ()
    assert any("no test split" in note for note in task.notes)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"sentence": "a", "class": "x"}, ("a", None, "x")),
        ({"premise": "a", "hypothesis": "b", "label": "x"}, ("a", "b", "x")),
        ({"sentence1": "a", "sentence2": "b", "label": 1}, ("a", "b", "1")),
        ({"question": "a", "sentence": "b", "label": 0}, ("a", "b", "0")),
        ({"content": "a", "category": True}, ("a", None, "true")),
        ({"text": "a", "label": 1.0}, ("a", None, "1")),
        ({"id": 7, "review": "a", "target": "x"}, ("a", None, "x")),
    ],
)
def test_usual_column_names(tmp_path: Path, row: dict[str, Any], expected: tuple[Any, ...]) -> None:
    label = list(row)[-1]
    other = {**row, label: "y" if row[label] == "x" else type(row[label])(not row[label])}
    if "id" in row:
        other["id"] = 8
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}.jsonl", [row, other])
    task = Task.read(tmp_path)
    assert (task.train[0].text, task.train[0].text_pair, task.train[0].label) == expected
    assert task.type == ("pair" if expected[1] else "text")
    assert task.train[0].id == ("7" if "id" in row else "train-1")


def test_named_columns_win_and_are_noted(tmp_path: Path) -> None:
    rows = [{**row, "body": f"body {row['text']}", "mood": "AB"[number % 2]} for number, row in enumerate(numbered(40))]
    columns = ColumnSettings(text="body", label="mood")
    task = Task.read(TaskSettings(path=str(write(tmp_path / "t.csv", rows)), columns=columns))
    assert task.labels == ("A", "B")
    assert all(row.text.startswith("body") for row in task.train)
    assert "read text from column 'body', label from column 'mood'" in task.notes


def three_splits(folder: Path, rows: Rows, form: str = ".jsonl") -> Path:
    for split in ("train", "dev", "test"):
        write(folder / f"{split}{form}", rows)
    return folder


@pytest.mark.parametrize("label", [["3.8", "5.000"], [3.8, 5], [0.5, 1]])
def test_fractions_make_a_score(tmp_path: Path, label: list[Any]) -> None:
    rows = [
        {"text": "a", "text_pair": "b", "label": label[0]},
        {"text": "c", "text_pair": "d", "label": label[1]},
    ]
    task = Task.read(three_splits(tmp_path, rows))
    assert (task.type, task.labels) == ("regression", ())
    assert [row.label for row in task.train] == [float(value) for value in label]
    assert task.train[0].text_pair == "b"
    assert any(note.startswith("type regression") for note in task.notes)


def test_whole_numbers_are_classes_unless_asked(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 2}]
    three_splits(tmp_path, rows)
    assert Task.read(tmp_path).labels == ("1", "2")
    scored = Task.read(TaskSettings(path=str(tmp_path), type="regression"))
    assert [row.label for row in scored.train] == [1.0, 2.0]
    assert Task.read(TaskSettings(path=str(tmp_path), type="text")).type == "text"


def test_kind_text_leaves_the_second_text_out(tmp_path: Path) -> None:
    rows = [{"text": "a", "text_pair": "b", "label": name} for name in "xy"]
    task = Task.read(TaskSettings(path=str(three_splits(tmp_path, rows)), type="text"))
    assert task.train[0].text_pair is None


@pytest.mark.parametrize("form", [".jsonl", ".parquet", ".csv"])
@pytest.mark.parametrize("blanks", [True, False])
def test_tags(tmp_path: Path, form: str, blanks: bool) -> None:
    tokens, tags = ["Aspirin", "helps"], ["B-drug", "O"]
    row: dict[str, Any] = {"tokens": tokens, "ner_tags": tags}
    if form == ".csv":
        row = {"tokens": " ".join(tokens), "ner_tags": " ".join(tags)}
        if not blanks:
            row = {"tokens": json.dumps(tokens), "ner_tags": json.dumps(tags)}
    task = Task.read(three_splits(tmp_path, [row], form))
    assert (task.type, task.labels) == ("token_classification", ("B-drug", "O"))
    assert task.train[0].tokens == ("Aspirin", "helps")
    assert task.train[0].label == ("B-drug", "O")
    assert task.train[0].text == "Aspirin helps"


def test_numbered_tags_and_a_class_beside_tokens(tmp_path: Path) -> None:
    numbers = three_splits(tmp_path, [{"words": ["a", "b"], "tags": [0, 3]}])
    assert Task.read(numbers).labels == ("0", "3")
    classes = [{"text": "a", "tokens": ["a"], "labels": "x"}, {"text": "b", "tokens": ["b"], "labels": "y"}]
    assert Task.read(three_splits(tmp_path, classes)).type == "text"


def test_rows_without_text_are_dropped_with_their_labels(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}" if n % 5 else " ", "label": "ab"[n % 2] if n % 5 else None} for n in range(20)]
    task = Task.read(three_splits(tmp_path, rows))
    assert task.dropped == {"train": 4, "dev": 4, "test": 4}
    assert all(row.label == "ab"[int(row.text.split()[1]) % 2] for row in task.train)
    assert task.train[0].id == "train-2"
    assert "4 train rows without text dropped" in task.notes


def test_fingerprint_follows_the_content_alone(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    rows = numbered(10)
    here = Task.read(three_splits(tmp_path / "here", rows))
    there = Task.read(three_splits(tmp_path / "there", rows, ".parquet"))
    assert here.fingerprint == there.fingerprint
    rows[3]["text"] += "!"
    assert Task.read(three_splits(tmp_path / "here", rows)).fingerprint != here.fingerprint
    path = write(tmp_path / "one.jsonl", numbered(50))
    assert Task.read(path, seed=0).fingerprint != Task.read(path, seed=1).fingerprint


def test_from_examples_writes_labels_as_the_files_do() -> None:
    rows = [Example(str(n), f"text {n}", n % 2) for n in range(10)]  # type: ignore[arg-type]
    task = Task.from_examples("parity", {"test": rows, "dev": rows, "train": rows})
    assert task.labels == ("0", "1")
    assert list(task.splits) == ["train", "dev", "test"]
    assert task.dev[1].label == "1"


def test_docstrings_is_the_built_in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def splits(seed: int) -> dict[str, list[Example]]:
        return {"train": [Example(f"{seed}-{n}", f"text {n}", str(n % 2)) for n in range(20)]}

    monkeypatch.setattr(task_module, "docstring_splits", splits)
    task = Task.read("docstrings", seed=3)
    assert task.name == "docstrings"
    assert all(example.id.startswith("3-") for example in task.train)
