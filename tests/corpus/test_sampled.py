"""Random draws of passages that can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.corpus import Corpus
from endtask.corpus.corpus import DrawnDocuments


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "notes.csv").write_text("text\n" + "".join(f"note number {number}\n" for number in range(40)))
    return Corpus.read(tmp_path / "notes.csv")


def test_all_passages_come_in_their_order_every_time(corpus: Corpus) -> None:
    drawn = DrawnDocuments(corpus)
    assert list(drawn) == list(drawn) == list(corpus.documents())


def test_guarded_passages_are_left_out(corpus: Corpus) -> None:
    kept = list(DrawnDocuments(corpus, is_contaminated=lambda text: text.endswith("7")))
    assert len(kept) == 36
    assert not any(one.text.endswith("7") for one in kept)
