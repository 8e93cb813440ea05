"""Who asked for what, against a dictionary that keeps every hit."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.retrieve.engine import Ranking, best
from endtask.retrieve.queries import Query
from endtask.retrieve.who_asked import ASKED_BY_KEPT, WhoAsked

PASSAGES = 4
# few different scores, so that equal ranks with equal scores are common
SCORES = st.lists(st.sampled_from([0.0, 1e-30, 0.5, 1.0, 7.25]), min_size=PASSAGES, max_size=PASSAGES)
QUERIES = st.lists(st.tuples(SCORES, st.integers(1, 3)), max_size=60)


@given(QUERIES, st.integers(1, PASSAGES))
@settings(max_examples=150, deadline=None)
def test_against_a_dictionary_of_all_hits(entries: list[tuple[list[float], int]], top_k: int) -> None:
    who, queries = WhoAsked(PASSAGES), []
    hits: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
    for number, (scores, askers) in enumerate(entries):
        queries.append(Query(f"query {number}", tuple(f"{number}.{asker}" for asker in range(askers))))
        ranking = best(np.asarray(scores, dtype=np.float32), top_k)
        who.add(number, queries[-1], ranking)
        pairs = zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True)
        for rank, (position, score) in enumerate(pairs, start=1):
            hits[position].append((rank, -score, number))
    for position in range(PASSAGES):
        found = sorted(hits[position])
        names = [name for _, _, number in found for name in queries[number].example_ids]
        assert who.asked_count[position] == len(names)
        assert who.asked(position, queries) == tuple(names[:ASKED_BY_KEPT])
        if found:
            assert who.best(position) == (found[0][0], -found[0][1])


def test_nobody_asked() -> None:
    who = WhoAsked(2)
    assert who.asked_count.tolist() == [0, 0]
    assert who.asked(1, []) == ()


def test_late_but_better_queries_push_out_worse_ones() -> None:
    who, queries = WhoAsked(1), [Query(str(number), (f"e{number}",)) for number in range(50)]
    for number, query in enumerate(queries):
        who.add(number, query, Ranking(np.asarray([0]), np.asarray([1.0 + number], dtype=np.float32)))
    assert who.asked(0, queries) == tuple(f"e{number}" for number in range(49, 29, -1))
    assert who.asked_count[0] == 50
    assert who.best(0) == (1, 50.0)


def test_of_equal_queries_the_earliest_stay() -> None:
    who, queries = WhoAsked(1), [Query(str(number), (f"e{number}",)) for number in range(30)]
    for number, query in enumerate(queries):
        who.add(number, query, Ranking(np.asarray([0]), np.asarray([2.0], dtype=np.float32)))
    assert who.asked(0, queries) == tuple(f"e{number}" for number in range(ASKED_BY_KEPT))


def test_ranks_beyond_sixteen_bits_and_any_positive_score_survive() -> None:
    count = 70_000
    scores = np.linspace(1e30, 1e-30, count).astype(np.float32)
    who = WhoAsked(count)
    who.add(0, Query("q", ("e",)), Ranking(np.arange(count), scores))
    assert who.best(0) == (1, float(scores[0]))
    assert who.best(count - 1) == (count, float(scores[-1]))
