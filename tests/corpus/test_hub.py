"""Data sets in the Hugging Face format, from a local folder and without network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from endtask.corpus import Corpus
from endtask.corpus.hub import split_address
from endtask.errors import InputError


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "one", "title": "T"}\n{"text": "two"}\n')
    (folder / "test.jsonl").write_text('{"text": "three"}\n')
    return folder


def test_rows_stream_with_ids(data_set: Path) -> None:
    documents = list(Corpus.read(f"hf:{data_set}").documents())
    assert [(document.id, document.text, document.title) for document in documents] == [
        ("notes/1", "one", "T"),
        ("notes/2", "two", None),
    ]


def test_a_split_can_be_named(data_set: Path) -> None:
    corpus = Corpus.read(f"mine=hf:{data_set}::test")
    assert [document.id for document in corpus.documents()] == ["mine/1"]


def test_the_fingerprint_follows_the_content(data_set: Path) -> None:
    before = Corpus.read(f"hf:{data_set}").fingerprint()
    assert Corpus.read(f"hf:{data_set}").fingerprint() == before
    assert Corpus.read(f"hf:{data_set}::test").fingerprint() != before
    (data_set / "train.jsonl").write_text('{"text": "other"}\n')
    assert Corpus.read(f"hf:{data_set}").fingerprint() != before


@pytest.mark.parametrize("rest", [":absent", "::absent"])
def test_wrong_names_are_one_line(data_set: Path, rest: str) -> None:
    with pytest.raises(InputError, match=r"cannot be loaded: .*absent") as caught:
        list(Corpus.read(f"hf:{data_set}{rest}").documents())
    assert "\n" not in str(caught.value)


def test_no_network_is_one_line() -> None:
    with pytest.raises(InputError, match="hf:nobody/nothing: cannot be loaded") as caught:
        list(Corpus.read("hf:nobody/nothing").documents())
    assert "\n" not in str(caught.value)


def test_without_the_package_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'endtask\[hub\]'"):
        list(Corpus.read("hf:any").documents())


@pytest.mark.parametrize("address", ["hf:", "hf::x", "hf:a:b:c:d"])
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(InputError, match="not an address on the hub"):
        split_address(address)
