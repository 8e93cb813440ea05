"""A corpus is paths or texts; a list of strings is never taken for the wrong one in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from endtask.api.corpora import corpus_rows, source_settings
from endtask.errors import InputError

TEXTS = ["Soup is hot.", "why?", "The moon *shines*."]


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("one.txt", "two words.txt"):
        Path(name).write_text("text", encoding="utf-8")


@pytest.mark.parametrize(
    ("corpus", "paths"),
    [
        ("one.txt", ["one.txt"]),
        ("absent.jsonl", ["absent.jsonl"]),
        (Path("one.txt"), ["one.txt"]),
        (["one.txt", Path("two words.txt")], ["one.txt", "two words.txt"]),
        (
            ["*.txt", "absent.csv", "hf:owner/name", "docstrings"],
            ["*.txt", "absent.csv", "hf:owner/name", "docstrings"],
        ),
    ],
)
def test_paths(corpus: Any, paths: list[str]) -> None:
    found = source_settings(corpus)
    assert found is not None
    assert [source["path"] for source in found] == paths


@pytest.mark.parametrize(
    "corpus",
    [
        TEXTS,
        tuple(TEXTS),
        pd.Series(TEXTS),
        np.array(TEXTS),
        pd.DataFrame({"text": TEXTS}),
        [{"text": text} for text in TEXTS],
        datasets.Dataset.from_dict({"text": TEXTS}),
        datasets.Dataset.from_dict({"text": TEXTS})["text"],
    ],
    ids=lambda corpus: type(corpus).__name__,
)
def test_texts(corpus: Any) -> None:
    assert source_settings(corpus) is None
    assert corpus_rows(corpus) == [{"text": text} for text in TEXTS]


def test_paths_and_texts_in_one_list() -> None:
    with pytest.raises(InputError, match=r"^corpus, row 2: 1 of 2 entries are paths, and this one is not"):
        source_settings(["one.txt", "A text of some words."])


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([], "corpus: no texts"),
        (["A text.", None], "corpus, row 2: the text is of type NoneType"),
        (7, "corpus: of type int"),
    ],
)
def test_no_corpus(corpus: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        corpus_rows(corpus)
