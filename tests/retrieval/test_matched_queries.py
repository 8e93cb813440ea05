"""The matched queries of passages against a dictionary of all hits."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.retrieval import matched_queries as module
from endtask.retrieval.bm25.rankings import RankedBlock, Rankings
from endtask.retrieval.matched_queries import MATCHED_QUERIES_STORED, MatchedPassages, QueryMatches
from endtask.retrieval.queries import Query

Entry = tuple[int, float]

# Few different scores, so that equal ranks with equal scores are common.
RANKINGS = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from([0.25, 0.5, 1.0, 7.25])), max_size=8, unique_by=lambda entry: entry[0]
).map(lambda entries: sorted(entries, key=lambda entry: (-entry[1], entry[0])))
ASKED = st.lists(st.tuples(RANKINGS, st.integers(1, 3)), max_size=60)


def write_rankings(folder: Path, rankings: list[list[Entry]], per_block: int) -> Rankings:
    firsts = range(0, len(rankings), per_block)
    for first in firsts:
        block = rankings[first : first + per_block]
        positions, scores = [[entry[part] for ranking in block for entry in ranking] for part in (0, 1)]
        sizes = np.asarray([len(ranking) for ranking in block], dtype=np.int64)
        RankedBlock(first, sizes, np.asarray(positions, dtype=np.int64), np.asarray(scores, dtype=np.float64)).save(
            folder / f"{first}.npz"
        )
    return Rankings([folder / f"{first}.npz" for first in firsts], firsts, len(rankings))


def make_queries(counts: list[int]) -> list[Query]:
    return [
        Query(f"query {number}", tuple(f"{number}.{example}" for example in range(count)))
        for number, count in enumerate(counts)
    ]


def turn(
    rankings: list[list[Entry]], queries: list[Query], borders: list[int], per_block: int = 7
) -> list[MatchedPassages]:
    with tempfile.TemporaryDirectory() as folder:
        who = QueryMatches(write_rankings(Path(folder), rankings, per_block), queries)
        return list(who.by_range(borders))


def as_rows(asked: MatchedPassages, names: list[str]) -> dict[int, tuple[object, ...]]:
    ends = np.cumsum(asked.query_counts)
    assert len(asked.query_matches) == asked.query_counts.sum()
    return {
        position: (
            int(asked.rank[row]),
            float(asked.score[row]),
            int(asked.matched_count[row]),
            [
                names[matched_query]
                for matched_query in asked.query_matches[ends[row] - asked.query_counts[row] : ends[row]]
            ],
        )
        for row, position in enumerate(asked.positions.tolist())
    }


def slow_rows(rankings: list[list[Entry]], queries: list[Query]) -> dict[int, tuple[object, ...]]:
    hits: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
    for number, ranking in enumerate(rankings):
        for rank, (position, score) in enumerate(ranking, start=1):
            hits[position].append((rank, -score, number))
    rows: dict[int, tuple[object, ...]] = {}
    for position, found in hits.items():
        found.sort()
        names = [name for _, _, number in found for name in queries[number].example_ids]
        rows[position] = (found[0][0], -found[0][1], len(names), names[:MATCHED_QUERIES_STORED])
    return rows


@given(ASKED, st.lists(st.integers(0, 12), max_size=4), st.integers(1, 9), st.sampled_from([1, 5, 10**6]))
@settings(max_examples=30)
def test_against_a_dictionary_of_all_hits(
    asked: list[tuple[list[Entry], int]], cuts: list[int], per_block: int, most: int
) -> None:
    rankings = [ranking for ranking, _ in asked]
    queries = make_queries([count for _, count in asked])
    names = [name for query in queries for name in query.example_ids]
    borders = [0, *sorted(cuts), 12]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_ENTRIES", most)
        stretches = turn(rankings, queries, borders, per_block)
    expected = slow_rows(rankings, queries)
    for (start, stop), stretch in zip(pairwise(borders), stretches, strict=True):
        within = sorted(position for position in expected if start <= position < stop)
        assert stretch.positions.tolist() == within
        assert as_rows(stretch, names) == {position: expected[position] for position in within}


def test_late_but_better_queries_push_out_worse_ones() -> None:
    queries = make_queries([1] * 50)
    (asked,) = turn([[(3, 1.0 + number)] for number in range(50)], queries, [0, 5])
    assert asked.positions.tolist() == [3]
    assert asked.query_matches.tolist() == list(range(49, 29, -1))
    assert (asked.rank[0], asked.score[0], asked.matched_count[0]) == (1, 50.0, 50)


def test_of_equal_queries_the_earliest_stay() -> None:
    (asked,) = turn([[(0, 2.0)]] * 30, make_queries([1] * 30), [0, 1])
    assert asked.query_matches.tolist() == list(range(MATCHED_QUERIES_STORED))


def test_a_query_of_many_examples_fills_the_list() -> None:
    (asked,) = turn([[(0, 2.0)], [(0, 3.0)]], make_queries([30, 5]), [0, 1])
    assert asked.query_matches.tolist() == [*range(30, 35), *range(15)]
    assert asked.matched_count.tolist() == [35]


def test_nobody_asked() -> None:
    for rankings in ([], [[], []]):
        stretches = turn(rankings, make_queries([1] * len(rankings)), [0, 4, 4, 9])
        assert [len(stretch.positions) for stretch in stretches] == [0, 0, 0]


def test_ranks_beyond_sixteen_bits_and_any_positive_score_survive() -> None:
    scores = np.linspace(1e30, 1e-30, 70_000).tolist()
    (asked,) = turn([list(enumerate(scores))], make_queries([1]), [0, 70_000])
    assert asked.rank.tolist() == list(range(1, 70_001))
    assert asked.score.tolist() == scores
