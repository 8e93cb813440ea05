"""Rankings are read from disk as they were written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.retrieval.bm25.rankings import RankedBlock, Rankings

ENTRIES = st.lists(st.tuples(st.integers(0, 2**40), st.floats(0, 1e30)), max_size=5)


def write_blocks(folder: Path, blocks: list[list[list[tuple[int, float]]]]) -> Rankings:
    first = 0
    paths, firsts = [], []
    for number, block in enumerate(blocks):
        entries = [entry for query in block for entry in query]
        paths.append(folder / f"{number}.npz")
        firsts.append(first)
        RankedBlock(
            first,
            np.asarray([len(query) for query in block], dtype=np.int64),
            np.asarray([position for position, _ in entries], dtype=np.int64),
            np.asarray([score for _, score in entries], dtype=np.float64),
        ).save(paths[-1])
        first += len(block)
    return Rankings(paths, firsts, first)


@given(st.lists(st.lists(ENTRIES, min_size=1, max_size=4), max_size=4), st.randoms(use_true_random=False))
def test_any_query_can_be_asked_for_in_any_order(blocks: list[list[list[tuple[int, float]]]], random: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rankings = write_blocks(Path(folder), blocks)
        queries = [query for block in blocks for query in block]
        assert len(rankings) == len(queries)
        order = list(range(len(queries)))
        random.shuffle(order)  # type: ignore[attr-defined]
        for number in order:
            ranking = rankings[number]
            assert list(zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True)) == queries[number]
        assert [block.first for block in rankings.blocks()] == [
            sum(map(len, blocks[:number])) for number in range(len(blocks))
        ]
        assert [block.sizes.tolist() for block in rankings.blocks()] == [
            [len(query) for query in block] for block in blocks
        ]


def test_queries_that_are_not_there(tmp_path: Path) -> None:
    rankings = write_blocks(tmp_path, [[[(1, 2.0)], []], [[(3, 4.0)]]])
    for number in (-1, 3):
        with pytest.raises(IndexError):
            rankings[number]
    assert [ranking.positions.tolist() for ranking in rankings] == [[1], [], [3]], "a plain loop ends"
    assert len(write_blocks(tmp_path, [])) == 0


def test_nothing_is_left_beside_a_block(tmp_path: Path) -> None:
    write_blocks(tmp_path, [[[(1, 2.0)]]])
    write_blocks(tmp_path, [[[(5, 6.0)]]])
    assert [path.name for path in tmp_path.iterdir()] == ["0.npz"]
    assert RankedBlock.load(tmp_path / "0.npz").positions.tolist() == [5]
