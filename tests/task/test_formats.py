"""Tasks in other forms: class folders, CoNLL, spans in texts, saved data sets, Excel and JSON; and what is not read."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.config import ColumnSettings, TaskSettings
from endtask.errors import InputError
from endtask.records import Example
from endtask.task import Task
from endtask.task.spans import Span, bio_tags, has_punctuation_split, words_of

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def films(folder: Path, *splits: str, suffix: str = ".txt") -> Path:
    for split in splits:
        for number in range(12):
            write(folder / split / "pos" / f"{number}{suffix}", f"a good film, {split} {number}\n")
            write(folder / split / "neg" / "more" / f"{number}{suffix}", f"a bad film, {split} {number}\n")
    return folder


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    task = Task.read(films(tmp_path / "films", ""))
    assert (task.name, task.type, task.labels) == ("films", "text", ("neg", "pos"))
    rows = {row.id: row for split in task.splits.values() for row in split}
    assert len(rows) == 24
    assert (rows["pos/3.txt"].text, rows["pos/3.txt"].label) == ("a good film,  3", "pos")
    assert rows["neg/more/3.txt"].label == "neg"


@pytest.mark.parametrize("suffix", ["", ".txt", ".01"])
def test_folders_of_splits_and_classes(tmp_path: Path, suffix: str) -> None:
    folder = films(tmp_path, "train", "valid", "test", suffix=suffix)
    write(folder / "train" / "unsup" / "1.txt", "a film")
    write(folder / "README.md", "about the films")
    write(folder / ".DS_Store", "")
    task = Task.read(folder)
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 24, "dev": 24, "test": 24}
    assert task.labels == ("neg", "pos")
    assert task.dev[0].id == f"valid/neg/more/0{suffix}"
    note = f"2 files of {tmp_path.name} not read, in no folder of a class: README.md, train/unsup/1.txt"
    assert task.notes == (note,)


def test_one_class_folder_is_no_task(tmp_path: Path) -> None:
    write(tmp_path / "texts" / "1.txt", "a text")
    with pytest.raises(InputError, match="no train file in this folder, only texts/"):
        Task.read(tmp_path)


CONLL = "-DOCSTART- -X- O\n\nIn IN O\nRome NNP B-place\n\nParis NNP B-place\n"


@pytest.mark.parametrize("name", ["{}.conll", "{}.txt", "{}.tsv", "{}.iob.gz"])
def test_conll_folders(tmp_path: Path, name: str) -> None:
    import gzip

    for split in ("train", "dev", "test"):
        content = CONLL.encode()
        write(tmp_path / name.format(split), gzip.compress(content) if name.endswith("gz") else content)
    task = Task.read(tmp_path)
    assert (task.type, task.labels) == ("token_classification", ("B-place", "O"))
    assert [(row.tokens, row.label) for row in task.train] == [
        (("In", "Rome"), ("O", "B-place")),
        (("Paris",), ("B-place",)),
    ]
    assert [row.row for row in task.train] == [3, 6]


def test_a_single_conll_file_of_any_name(tmp_path: Path) -> None:
    rows = "".join(f"word{number} O\nRome B-place\n\n" for number in range(30))
    task = Task.read(write(tmp_path / "eng.train", rows))
    assert len(task.train) == 24


# A slow and obvious oracle: the tag of each character, then of each word.


def tags_by_characters(text: str, words: list[tuple[int, int]], spans: list[Span]) -> list[str]:
    owner: list[int | None] = [None] * len(text)
    for number, span in enumerate(spans):
        for index in range(span.start, span.end):
            owner[index] = number
    tags, before = [], None
    for start, end in words:
        numbers = [number for number in owner[start:end] if number is not None]
        number = numbers[0] if numbers else None
        tags.append("O" if number is None else f"{'I' if number == before else 'B'}-{spans[number].label}")
        before = number
    return tags


spaced = st.text(st.sampled_from("ab1.,- \u00e9"), min_size=1, max_size=40)


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[Span]]:
    """A text and spans that share no word, whose ends are anywhere."""
    text = draw(spaced.filter(str.strip))
    words = words_of(text)
    borders = sorted(draw(st.sets(st.integers(0, len(words)), max_size=6)))
    spans = []
    for first, last in list(pairwise(borders))[::2]:
        start = draw(st.integers(words[first][0], words[first][1] - 1))
        end = draw(st.integers(max(start, words[last - 1][0]) + 1, words[last - 1][1]))
        spans.append(Span(start, end, draw(st.sampled_from(["place", "name"]))))
    return text, spans


@given(example=texts_with_spans())
def test_tags_are_those_of_the_characters(example: tuple[str, list[Span]]) -> None:
    text, spans = example
    words = words_of(text)
    assert bio_tags(words, spans) == tags_by_characters(text, words, spans)
    assert "".join(text[start:end] for start, end in words) == "".join(text.split())


FORMS: dict[str, Any] = {
    "spans": lambda span: {"start": span.start, "end": span.end, "label": span.label, "token_start": 0},
    "entities": lambda span: [span.start, span.end, span.label],
    "label": lambda span: [span.start, span.end, span.label],
    "labels": lambda span: {"start_offset": span.start, "end_offset": span.end, "type": span.label},
}


@settings(QUICK, max_examples=20)
@given(examples=st.lists(texts_with_spans(), min_size=1, max_size=5), column=st.sampled_from(list(FORMS)))
def test_spans_become_tags(tmp_path: Path, examples: list[tuple[str, list[Span]]], column: str) -> None:
    anchored = [*examples, ("in Rome now", [Span(3, 7, "place")])]
    rows = [
        {"text": text, column: [FORMS[column](span) for span in reversed(spans)], "id": f"r{number}"}
        for number, (text, spans) in enumerate(anchored)
    ]
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    task = Task.read(tmp_path)
    assert task.type == "token_classification"
    assert [(row.id, row.tokens, row.label) for row in task.train] == [
        (f"r{number}", tuple(text[start:end] for start, end in words), tuple(bio_tags(words, spans)))
        for number, (text, spans) in enumerate(anchored)
        for words in [words_of(text)]
    ]


def spans_file(folder: Path, *rows: dict[str, Any]) -> Path:
    return write(folder / "train.json", json.dumps({"data": rows}))


ROME = {"text": "in Rome, Italy", "spans": [{"start": 3, "end": 7, "label": "place"}]}


def test_named_span_columns_and_wide_spans(tmp_path: Path) -> None:
    rows = [{"body": f"in Rome{number}", "marks": [[3, 5, "place"]], "doc": number} for number in range(20)]
    columns = ColumnSettings(text="body", tags="marks", group="doc")
    task = Task.read(TaskSettings(path=str(spans_file(tmp_path, *rows)), columns=columns))
    assert task.train[0].label == ("O", "B-place")
    assert task.train[0].group is not None
    assert "spans of column 'marks' became BIO tags of words" in task.notes
    assert "20 of 20 spans start or end inside a word, and cover the whole word" in task.notes


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[3, 99, "a"]], r"the span \[3, 99\] is not in the text of 14 characters"),
        ([[7, 3, "a"]], r"the span \[7, 3\] is not in the text"),
        ([[2, 3, "a"]], r"the span \[2, 3\] holds no word"),
        ([[3, 7, "a"], [0, 4, "b"]], r"the spans \[0, 4, 'b'\] and \[3, 7, 'a'\] share the word 'Rome'"),
        ([[3, 7, ""]], r"holds \"\[3, 7, ''\]\", not a span"),
        ([5], "holds '5', not a span"),
    ],
)
def test_broken_spans_are_named(tmp_path: Path, spans: list[Any], message: str) -> None:
    path = spans_file(tmp_path, ROME, {"text": "in Rome, Italy", "spans": spans})
    with pytest.raises(InputError, match=message) as caught:
        Task.read(path)
    assert (caught.value.row, caught.value.key) == (2, "spans")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("splits", [True, False])
def test_a_saved_data_set(tmp_path: Path, splits: bool) -> None:
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    rows = {"text": [f"text {number}" for number in range(40)], "label": [number % 2 for number in range(40)]}
    data = datasets.Dataset.from_dict(rows, features=features)
    saved = datasets.DatasetDict({"train": data, "validation": data, "test": data}) if splits else data
    saved.save_to_disk(str(tmp_path / "saved"))
    task = Task.read(tmp_path / "saved")
    assert task.labels == ("neg", "pos")
    assert len(task.dev) == (40 if splits else 4)
    assert {row.text for row in task.train} <= set(rows["text"])


def test_a_damaged_saved_data_set(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    write(tmp_path / "dataset_dict.json", "{")
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        Task.read(tmp_path)
    assert "\n" not in str(caught.value)


def labelled(count: int) -> list[dict[str, str]]:
    return [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(count)]


def test_json_and_excel_tasks(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    write(tmp_path / "train.json", json.dumps(labelled(20)))
    book = openpyxl.Workbook()
    for row in [["text", "label"], *(list(row.values()) for row in labelled(8))]:
        book.active.append(row)
    book.save(tmp_path / "test.xlsx")
    task = Task.read(tmp_path)
    assert (len(task.train) + len(task.dev), len(task.test)) == (20, 8)


def test_files_that_are_not_read_are_named(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in labelled(20))
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}.jsonl", lines)
    write(tmp_path / "train.json", json.dumps(labelled(3)))
    write(tmp_path / "extra.csv", "text,label\n")
    write(tmp_path / "notes" / "a.txt", "")
    task = Task.read(tmp_path)
    assert len(task.train) == 20, "JSON Lines go before other formats of the same name"
    note = f"3 files or folders of {tmp_path.name} not read, named after no split: extra.csv, notes/, train.json"
    assert task.notes == (note,)


def test_the_encoding_of_a_byte_order_mark_is_noted(tmp_path: Path) -> None:
    rows = "text,label\n" + "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(20))
    task = Task.read(write(tmp_path / "t.csv", rows.encode("utf-16")))
    assert task.notes[0] == "t.csv was read as UTF-16"


def test_guesses_are_noted(tmp_path: Path) -> None:
    rows = "".join(f"schön {number};{'ab'[number % 2]}\n" for number in range(20))
    task = Task.read(write(tmp_path / "t.csv", f"text;label\n{rows}".encode("cp1252")))
    assert "schön" in task.train[0].text
    assert [note.split(";")[0] for note in task.notes[:2]] == [
        "t.csv is not UTF-8 and was read as Windows-1252",
        "t.csv: cells are separated by semicolons",
    ]


@pytest.mark.parametrize(
    ("words", "apart"),
    [((("in", "Rome", "."), ("a", "b")), True), ((("in", "Rome."), ("a",)), False), ((("new moon",),), False)],
)
def test_words_with_punctuation_split_off_are_recognized(words: tuple[tuple[str, ...], ...], apart: bool) -> None:
    examples = [Example(str(number), "", (), tokens=tokens) for number, tokens in enumerate(words)]
    assert has_punctuation_split(examples) is apart
