"""The random baseline: uniform, seeded, exact, over all uncontaminated passages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.run_layout import PASSAGE_SIZES
from endtask.selectors.random import documents_at, random_order
from tests.selectors.candidates import passage, run_select, write_corpus, write_retrieved

TEXTS = [f"passage number {number} {'é' * (1 + number % 7)}" for number in range(60)]
TOTAL = sum(len(text.encode()) for text in TEXTS)
DROPPED = (3, 17, 59)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    write_retrieved(tmp_path, [passage(place, 1, 1.0, text) for place, text in enumerate(TEXTS)])
    return write_corpus(tmp_path, TEXTS, DROPPED)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 5), st.lists(st.integers(0, 3), max_size=9))
def test_an_order_of_all_with_text_that_growth_leaves_alone(sizes: list[int], seed: int, more: list[int]) -> None:
    order = random_order(np.asarray(sizes, dtype=np.int64), seed).tolist()
    assert sorted(order) == [place for place, size in enumerate(sizes) if size]
    grown = random_order(np.asarray([*sizes, *more], dtype=np.int64), seed).tolist()
    assert [place for place in grown if place < len(sizes)] == order


def test_every_order_is_as_likely_as_another() -> None:
    firsts = Counter(tuple(random_order(np.ones(3, dtype=np.int64), seed).tolist()) for seed in range(1200))
    assert len(firsts) == 6
    assert all(140 < count < 260 for count in firsts.values())  # 200 each, give or take five standard deviations


@pytest.mark.parametrize("budget", ["10%", "300B", "7passages", "100%"])
def test_the_budget_is_filled_to_the_passage(tmp_path: Path, corpus: Corpus, budget: str) -> None:
    counts, kept = run_select(tmp_path, corpus=corpus, corpus_bytes=TOTAL, name="random", budget=budget)
    sizes = np.load(tmp_path / PASSAGE_SIZES).astype(np.int64)
    order = random_order(sizes, 0).tolist()
    assert {item.position for item in kept} == set(order[: len(kept)])
    assert counts["bytes"] == sum(len(item.document.text.encode()) for item in kept)
    assert counts["share_of_corpus"] == counts["bytes"] / TOTAL
    following = sizes[order[len(kept)]] if len(kept) < len(order) else TOTAL
    limit = {"10%": 0.1 * TOTAL, "300B": 300, "100%": TOTAL}.get(budget)
    if limit is None:
        assert len(kept) == 7
    else:
        assert counts["bytes"] <= limit < counts["bytes"] + following


def test_rows_tell_where_they_come_from(tmp_path: Path, corpus: Corpus) -> None:
    _, kept = run_select(tmp_path, corpus=corpus, corpus_bytes=TOTAL, name="random", budget="9passages", seed=4)
    assert [item.position for item in kept] == sorted(item.position for item in kept)
    assert not {item.position for item in kept} & set(DROPPED)
    documents = list(corpus.documents())
    assert all(item.document == documents[item.position] for item in kept)
    assert sorted(item.rank for item in kept) == list(range(1, 10))
    assert all(item.reason == f"random: draw {item.rank} of seed 4" for item in kept)
    assert all((item.matched_count, item.matched_queries) == (0, ()) for item in kept)


def test_the_seed_decides(tmp_path: Path, corpus: Corpus) -> None:
    def draw(seed: int) -> list[int]:
        values = {"name": "random", "budget": "9passages", "seed": seed}
        return [item.position for item in run_select(tmp_path, corpus=corpus, corpus_bytes=TOTAL, **values)[1]]

    assert draw(0) == draw(0) != draw(1)


@pytest.mark.parametrize("budget", [None, "50%", "158B"])
def test_no_more_bytes_than_were_retrieved(tmp_path: Path, corpus: Corpus, budget: str | None) -> None:
    write_retrieved(tmp_path, [passage(0, 1, 1.0, "x" * 100), passage(1, 1, 1.0, "y" * 57)])
    counts, kept = run_select(tmp_path, corpus=corpus, corpus_bytes=TOTAL, name="random", budget=budget)
    sizes = np.load(tmp_path / PASSAGE_SIZES).astype(np.int64)
    following = sizes[random_order(sizes, 0)[len(kept)]]
    assert counts["bytes"] <= 157 < counts["bytes"] + following


def test_no_more_passages_than_were_retrieved(tmp_path: Path, corpus: Corpus) -> None:
    write_retrieved(tmp_path, [passage(0, 1, 1.0, "x" * 100), passage(1, 1, 1.0, "y" * 57)])
    _, kept = run_select(tmp_path, corpus=corpus, corpus_bytes=TOTAL, name="random", budget="7passages")
    assert len(kept) == 2


def test_nothing_that_may_be_drawn_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, ["one text"], dropped=(0,))
    write_retrieved(tmp_path, [passage(0, 1, 1.0, "one text")])
    with pytest.raises(
        InputError,
        match=r"no passage was selected \(nothing was retrieved, or the contamination filter left no passage",
    ):
        run_select(tmp_path, corpus=corpus, name="random", budget="100%")


def test_a_corpus_that_changed_is_refused(tmp_path: Path, corpus: Corpus) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(path.read_text().replace("number 8 ", "No. 8 "))
    with pytest.raises(InputError, match="the corpus changed since it was searched"):
        run_select(tmp_path, corpus=corpus, corpus_bytes=TOTAL, name="random", budget="100%")


def test_documents_are_read_no_further_than_the_last_wanted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, ["first", "second"])
    with open(tmp_path / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.write("broken\n")
    found = list(documents_at(corpus, np.asarray([1])))
    assert [(position, document.text) for position, document in found] == [(1, "second")]
    assert list(documents_at(corpus, np.zeros(0, dtype=np.int64))) == []
