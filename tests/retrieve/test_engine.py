"""Scores are BM25 in Lucene's form, and a ranking is the full sort by score and corpus order, cut at K."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.retrieve.engine import Bm25sEngine, Ranking, best
from endtask.retrieve.words import Vocabulary, number_words

WORDS = st.sampled_from(list("abcdef"))
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
CORPORA = st.lists(TEXTS, min_size=1, max_size=12).filter(lambda texts: any(texts))


def engine_for(texts: list[str], k1: float, b: float) -> tuple[Bm25sEngine, Vocabulary]:
    vocabulary = Vocabulary()
    passages = number_words(texts, vocabulary)
    return Bm25sEngine(passages, vocabulary, k1=k1, b=b), vocabulary


def slow_bm25(texts: list[str], query: str, k1: float, b: float) -> list[float]:
    """The formula of Lucene, word by word."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in query.split():
            holding = sum(word in other for other in documents)
            count = document.count(word)
            if holding and count:
                idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
                score += idf * count / (count + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


@given(CORPORA, TEXTS, st.floats(0, 3), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_scores_are_lucenes_bm25(texts: list[str], query: str, k1: float, b: float) -> None:
    engine, vocabulary = engine_for(texts, k1, b)
    scores = engine.scores(vocabulary.known(query))
    np.testing.assert_allclose(scores, slow_bm25(texts, query, k1, b), rtol=1e-5, atol=1e-6)


@given(CORPORA, st.lists(WORDS, min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_scores_are_those_of_bm25s_used_the_plain_way(texts: list[str], query: list[str]) -> None:
    import bm25s

    plain = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    plain.index([text.split() for text in texts], show_progress=False)
    engine, vocabulary = engine_for(texts, 1.2, 0.75)
    known = [word for word in query if len(vocabulary.known(word))]
    expected = plain.get_scores(known) if known else np.zeros(len(texts))
    np.testing.assert_allclose(engine.scores(vocabulary.known(" ".join(query))), expected, rtol=1e-6)


@given(CORPORA, st.lists(TEXTS, max_size=4), st.integers(1, 15))
@settings(max_examples=50, deadline=None)
def test_rank_gives_one_ranking_per_query_in_order(texts: list[str], queries: list[str], top_k: int) -> None:
    engine, vocabulary = engine_for(texts, 1.2, 0.75)
    rankings = list(engine.rank((vocabulary.known(query) for query in queries), top_k))
    assert len(rankings) == len(queries)
    for query, ranking in zip(queries, rankings, strict=True):
        sharing = {place for place, text in enumerate(texts) if set(text.split()) & set(query.split())}
        assert len(ranking.positions) == min(top_k, len(sharing))
        assert sharing.issuperset(ranking.positions.tolist())
        assert all(first >= second for first, second in pairwise(ranking.scores))


@pytest.mark.parametrize("texts", [[], ["", "..."]])
def test_passages_without_words_rank_nothing(texts: list[str]) -> None:
    vocabulary = Vocabulary()
    vocabulary.add("a word of a passage that was dropped")
    engine = Bm25sEngine(number_words(texts, Vocabulary()), vocabulary, k1=1.2, b=0.75)
    (ranking,) = engine.rank(iter([vocabulary.known("a word")]), 5)
    assert len(ranking.positions) == len(ranking.scores) == 0


def test_a_word_of_dropped_passages_only_scores_nothing() -> None:
    vocabulary = Vocabulary()
    stream = number_words(["kept text", "dropped words"], vocabulary)
    engine = Bm25sEngine(stream.take(np.asarray([True, False])), vocabulary, k1=1.2, b=0.75)
    assert engine.scores(vocabulary.known("dropped words")).tolist() == [0.0]
    assert engine.scores(vocabulary.known("kept"))[0] > 0


TIED_SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]) | st.floats(0, 4, width=32), max_size=40)


@given(TIED_SCORES, st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_best_is_the_full_sort_cut_at_k(values: list[float], top_k: int) -> None:
    scores = np.asarray(values, dtype=np.float32)
    expected = sorted((-score, place) for place, score in enumerate(scores.tolist()) if score > 0)[:top_k]
    ranking = best(scores, top_k)
    assert ranking.positions.tolist() == [place for _, place in expected]
    assert ranking.scores.tolist() == [-score for score, _ in expected]
    assert ranking.positions.dtype == np.int64


def test_ties_at_the_border_go_to_the_earlier_passages() -> None:
    ranking = best(np.asarray([1, 2, 1, 2, 1, 0], dtype=np.float32), 4)
    assert ranking.positions.tolist() == [1, 3, 0, 2]


def test_ties_stand_in_corpus_order_in_long_rankings_too() -> None:
    scores = np.random.default_rng(0).integers(0, 4, 5000).astype(np.float32)
    expected = sorted((-score, place) for place, score in enumerate(scores.tolist()) if score > 0)
    for top_k in (10, 2000, 6000):
        assert best(scores, top_k).positions.tolist() == [place for _, place in expected[:top_k]]


def test_moved_ranks_the_same_passages_at_their_other_places() -> None:
    ranking = Ranking(np.asarray([2, 0]), np.asarray([3.0, 1.0], dtype=np.float32))
    moved = ranking.moved(np.asarray([5, 6, 9]))
    assert moved.positions.tolist() == [9, 5]
    assert moved.scores.tolist() == [3.0, 1.0]
