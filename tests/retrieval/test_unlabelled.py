"""Unlabelled texts are read from any table or text file, and never stand for a dev or test text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from endtask.config import ColumnSettings
from endtask.errors import InputError
from endtask.records import Example
from endtask.retrieval.queries import Unlabelled, read_unlabelled


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


def texts(found: Unlabelled) -> dict[str, str]:
    return {example.id: example.text for example in found.examples}


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("more.csv", 'text,label\n"one, two",x\nthree,y\n', (2, 3)),
        ("more.tsv", "label\tsentence\nx\tone, two\ny\tthree\n", (2, 3)),
        ("more.jsonl", '{"review": "one, two"}\n\n{"review": "three"}\n', (1, 3)),
        ("more.ndjson", '{"abstract": "one, two"}\n{"abstract": "three"}\n', (1, 2)),
        ("more.jsonl", '{"tokens": ["one,", "two"]}\n{"tokens": ["three"]}\n', (1, 2)),
        ("more.txt", "one, two\n \nthree\n", (1, 3)),
    ],
)
def test_every_kind_of_file(tmp_path: Path, name: str, content: str, rows: tuple[int, int]) -> None:
    path = write(tmp_path / name, content)
    found = read_unlabelled(path, [])
    assert texts(found) == {f"unlabelled/{rows[0]}": "one, two", f"unlabelled/{rows[1]}": "three"}
    assert found.held_back == 0
    assert [(example.label, example.path, example.row) for example in found.examples] == [
        ("", path, row) for row in rows
    ]


def test_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "more.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert list(texts(read_unlabelled(str(path), [])).values()) == ["one", "two"]


def test_a_folder_names_the_file_in_each_id(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one\n")
    write(tmp_path / "b.csv", "text\ntwo\n")
    assert texts(read_unlabelled(str(tmp_path), [])) == {"unlabelled/a.txt#1": "one", "unlabelled/b.csv#2": "two"}


def test_the_columns_of_the_task_are_tried_first(tmp_path: Path) -> None:
    path = write(tmp_path / "more.csv", "text,claim,proof\nignored,one,two\n")
    named = ColumnSettings(text="claim", text_pair="proof", label="verdict")
    (example,) = read_unlabelled(path, [], named).examples
    assert (example.text, example.text_pair) == ("one", "two")
    other = write(tmp_path / "other.csv", "sentence\nthree\n")
    assert list(texts(read_unlabelled(other, [], named)).values()) == ["three"]


def test_a_pair_may_lack_its_second_text(tmp_path: Path) -> None:
    rows = [{"premise": "one", "hypothesis": "two"}, {"premise": "three", "hypothesis": None}]
    path = write(tmp_path / "more.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = read_unlabelled(path, []).examples
    assert [(example.text, example.text_pair) for example in found] == [("one", "two"), ("three", None)]


def test_dev_and_test_texts_are_held_back_whatever_they_are_dressed_in(tmp_path: Path) -> None:
    lines = ["A free text", "egfr BINDS gefitinib", "The man. He sleeps.", "he sleeps", "A free text, too", "?!"]
    path = write(tmp_path / "more.txt", "\n".join(lines))
    evaluation = [
        Example("dev-1", "<< EGFR >> binds [[ gefitinib ]].", "x"),
        Example("test-1", "The man.", "y", text_pair="He sleeps!"),
        Example("test-2", "...", "y"),
    ]
    found = read_unlabelled(path, evaluation)
    assert list(texts(found).values()) == ["A free text", "A free text, too", "?!"]
    assert found.held_back == 3


def test_a_pair_is_held_back_for_either_text(tmp_path: Path) -> None:
    path = write(tmp_path / "more.csv", "text,text_pair\nfree,guarded one\nfree,free too\n")
    found = read_unlabelled(path, [Example("dev-1", "Guarded: one", "x")])
    assert (list(texts(found)), found.held_back) == (["unlabelled/3"], 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "headline,score\nx,1\n", "no column for the text among headline, score (name it 'text', or as in"),
        ("a.jsonl", '{"text": "x"}\n{"text": null}\n', "row 2: column 'text' is null, not a text"),
        ("a.jsonl", '{"text": "x"}\n{"text": 7}\n', "row 2: column 'text' is of type int, not a text"),
        ("a.jsonl", '{"text": "x"}\n{"txt": "y"}\n', "row 2: no column 'text' (did you mean 'txt'?)"),
        ("a.jsonl", '{"tokens": ["x"]}\n{"tokens": ["y", 1]}\n', "row 2: column 'tokens' is of type list, not a text"),
        ("a.jsonl", "not json\n", "row 1: not valid JSON"),
        ("a.jsonl", "{}\n", "no column for the text among none"),
        ("a.csv", "text\n", "key 'retrieve.unlabelled': contains no text"),
        ("a.txt", " \n\n", "key 'retrieve.unlabelled': contains no text"),
        ("a.pdf", "x", "unknown kind of file (known: .csv"),
    ],
)
def test_bad_files_are_told_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError) as caught:
        read_unlabelled(path, [])
    line = str(caught.value)
    assert line.startswith(path)
    assert message in line
    assert "\n" not in line


def test_a_missing_file_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path / "texts.csv", "text\nx\n")
    with pytest.raises(InputError, match=r"no such file or folder \(did you mean 'texts.csv'\?\)"):
        read_unlabelled(str(tmp_path / "text.csv"), [])
    with pytest.raises(InputError, match=r"key 'retrieve.unlabelled': the path is empty"):
        read_unlabelled(" ", [])
