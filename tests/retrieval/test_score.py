"""The scoring kernel against plain sums, with more passages than a query's buffer holds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from endtask.retrieval.bm25.score import LANES, Bm25, QueryBlock
from endtask.retrieval.bm25.shards import PASSAGE, Chunk

TERMS = 60
ABSENT, SCORED, CONTAMINATED = 0, 1, 2

Passage = list[int]
"""The terms of a passage, as often as they stand there."""


def chunk_of(passages: list[Passage]) -> Chunk:
    records = np.zeros(len(passages), dtype=PASSAGE)
    pairs = []
    for record, passage in zip(records, passages, strict=True):
        record["words"] = len(passage)
        for term, times in Counter(passage).items():
            parts = [255] * (times // 255) + [times % 255]
            pairs += [term << 8 | part for part in parts]
            record["pairs"] += len(parts)
    return Chunk(0, records, np.asarray(pairs, dtype=np.uint32))


def bm25_of(passages: list[Passage], states: list[int], k1: float = 1.2, b: float = 0.75) -> Bm25:
    scored = [passage for passage, state in zip(passages, states, strict=True) if state == SCORED]
    frequency = np.zeros(TERMS)
    for passage in scored:
        frequency[sorted(set(passage))] += 1
    idf = np.log1p((len(scored) - frequency + 0.5) / (frequency + 0.5))
    return Bm25(idf, sum(map(len, scored)) / max(1, len(scored)) or 1.0, k1, b)


def slow_rankings(
    queries: list[list[int]], passages: list[Passage], states: list[int], bm25: Bm25, top_k: int
) -> list[list[int]]:
    """All scores of all passages, summed in the order of the terms."""
    counts = np.zeros((len(passages), TERMS))
    for row, passage in zip(counts, passages, strict=True):
        np.add.at(row, passage, 1)
    norms = bm25.k1 * (1 - bm25.b + bm25.b * np.asarray([len(passage) for passage in passages]) / bm25.mean_length)
    weights = bm25.idf * counts / np.maximum(counts + norms[:, None], 1e-300)  # (passages, terms)
    positions = np.cumsum(np.asarray(states) != ABSENT) - 1
    rankings = []
    for query in queries:
        scores = np.zeros(len(passages))
        for term, asked in sorted(Counter(query).items()):
            scores += asked * weights[:, term]
        found = [row for row in np.flatnonzero(scores).tolist() if states[row] == SCORED]
        found.sort(key=lambda row: (-scores[row], row))
        rankings.append(positions[found[:top_k]].tolist())
    return rankings


def ranked(
    queries: list[list[int]], passages: list[Passage], states: list[int], bm25: Bm25, top_k: int, step: int
) -> list[list[int]]:
    block = QueryBlock([np.asarray(query, dtype=np.int64) for query in queries], bm25, top_k)
    position = 0
    for first in range(0, len(passages), step):
        some = np.asarray(states[first : first + step], dtype=np.uint8)
        block.score(chunk_of(passages[first : first + step]), some, position, bm25)
        position += int(np.count_nonzero(some))
    found = block.ranked(7)
    assert found.first == 7
    return [part.tolist() for part in np.split(found.positions, np.cumsum(found.sizes)[:-1])]


def zipf(random: np.random.Generator, count: int) -> NDArray[np.int64]:
    shares = 1.0 / np.arange(1, TERMS + 1)
    return random.choice(TERMS, count, p=shares / shares.sum())


@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.9, 1.2, 50.0]),
    st.sampled_from([0.0, 0.4, 0.75, 1.0]),
    st.sampled_from([1, 37, 1000]),
)
@settings(max_examples=20)
def test_the_best_passages_are_those_of_plain_sums(
    seed: int, count: int, top_k: int, k1: float, b: float, step: int
) -> None:
    """With at most 20 of up to 300 passages kept, most are left out by the bound and rankings are cut many times."""
    random = np.random.default_rng(seed)
    # Terms 0 to 3 are in most passages, so they are left to the bound; equal passages make ties.
    passages = [zipf(random, random.integers(0, 15)).tolist() for _ in range(count)]
    passages = [passages[number] for number in random.integers(0, count, count)]
    states = random.choice([ABSENT, SCORED, SCORED, SCORED, CONTAMINATED], count).tolist()
    queries = [zipf(random, random.integers(0, 12)).tolist() for _ in range(random.integers(1, 2 * LANES + 2))]
    bm25 = bm25_of(passages, states, k1, b)
    expected = slow_rankings(queries, passages, states, bm25, top_k)
    assert ranked(queries, passages, states, bm25, top_k, step) == expected


@pytest.mark.parametrize("rising", [True, False])
def test_the_best_may_come_first_or_last(rising: bool) -> None:
    passages = [[1] * times + [2] * (1000 - times) for times in range(1, 900)]
    passages = passages if rising else passages[::-1]
    states = [SCORED] * len(passages)
    bm25 = bm25_of(passages, states)
    expected = list(range(898, 888, -1)) if rising else list(range(10))
    assert ranked([[1]], passages, states, bm25, 10, 100) == [expected]


def test_scores_closer_than_single_precision_can_tell() -> None:
    """The bound is worked out in single precision, yet passages a billionth better than the K-th come in."""
    random = np.random.default_rng(0)
    terms = np.arange(10, 20)
    near = [[*terms.tolist(), *[2] * (1400 - step)] for step in range(700)]
    fillers = [random.choice(terms, 1 + step % 2, p=np.arange(10) / 45).tolist() for step in range(1400)]
    passages = [passage for step, one in enumerate(near) for passage in (one, *fillers[2 * step : 2 * step + 2])]
    queries = [random.choice(terms, random.integers(4, 12)).tolist() for _ in range(40)]
    states = [SCORED] * len(passages)
    bm25 = bm25_of(passages, states, k1=0.1, b=1e-5)
    expected = slow_rankings(queries, passages, states, bm25, 5)
    assert [2097, 2094, 2091, 2088, 2085] in expected, "each is better than those before"
    assert ranked(queries, passages, states, bm25, 5, 500) == expected


def test_of_equal_passages_the_first_stay() -> None:
    passages, states = [[1, 2]] * 500 + [[1, 1]] + [[1, 2]] * 500, [SCORED] * 1001
    bm25 = bm25_of(passages, states)
    assert ranked([[1], [1, 1, 2]], passages, states, bm25, 4, 64) == [[500, 0, 1, 2], [0, 1, 2, 3]]


def test_a_block_without_queries_or_passages() -> None:
    bm25 = bm25_of([[1]], [SCORED])
    assert ranked([], [[1]], [SCORED], bm25, 3, 1) == [[]]
    assert ranked([[1], []], [], [], bm25, 3, 1) == [[], []]
