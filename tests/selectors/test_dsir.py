"""Importance resampling: the weights of the paper, and exact, seeded draws."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.records import Selected
from endtask.selectors.dsir import gumbel_noise, log_ratios
from endtask.selectors.hashing import BUCKETS, draws
from tests.selectors.candidates import run_select, write_retrieved
from tests.selectors.test_ngrams import counted_slowly
from tests.selectors.texts import EXAMPLES, TEXTS, passages_of, retrieve_texts


def importance_slowly(texts: list[str]) -> list[float]:
    """log p_task(text) / p_raw(text), bucket by bucket."""
    raw: Counter[int] = Counter()
    for text in texts:
        raw.update(counted_slowly(text))
    task: Counter[int] = Counter()
    for example in EXAMPLES:
        task.update(counted_slowly(example.text))
        task.update(counted_slowly(example.text_pair or ""))

    def log_ratio(bucket: int) -> float:
        p_raw = (raw[bucket] + 1) / (raw.total() + BUCKETS)
        return math.log((task[bucket] + BUCKETS * p_raw) / (task.total() + BUCKETS) / p_raw)

    return [sum(count * log_ratio(bucket) for bucket, count in counted_slowly(text).items()) for text in texts]


def gumbel_slowly(number: int) -> float:
    return -math.log(-math.log(((number >> 11) + 0.5) / 2**53))


def dsir(folder: Path, budget: str | None, seed: int = 0) -> list[Selected]:
    values = {"name": "dsir", "budget": budget, "seed": seed, "examples": EXAMPLES}
    return run_select(folder, corpus_bytes=1000, **values)[1]


@given(TEXTS, st.integers(1, 9), st.integers(0, 3))
@settings(max_examples=15)
def test_against_a_slow_resampler(texts: list[str], budget: int, seed: int) -> None:
    with TemporaryDirectory() as folder:
        retrieve_texts(Path(folder), texts)
        kept = dsir(Path(folder), f"{budget}passages", seed)
    weights = importance_slowly(texts)
    noise = [gumbel_slowly(int(draws([f"d{place}"], seed, "dsir")[0])) for place in range(len(texts))]
    order = sorted(range(len(texts)), key=lambda place: -(weights[place] + noise[place]))
    assert {item.document.id for item in kept} == {f"d{place}" for place in order[:budget]}
    assert len(kept) == min(budget, len(texts))
    for item in kept:
        assert item.score == pytest.approx(weights[item.position], abs=1e-9)
        assert order[item.rank - 1] == item.position


@given(TEXTS, st.randoms())
@settings(max_examples=8)
def test_the_order_of_the_candidates_does_not_matter(texts: list[str], chance: random.Random) -> None:
    passages = passages_of(texts)
    shuffled = list(passages)
    chance.shuffle(shuffled)
    with TemporaryDirectory() as folder:
        first = dsir(write_retrieved(Path(folder), passages), "5passages")
        second = dsir(write_retrieved(Path(folder), shuffled), "5passages")
    assert sorted(first, key=lambda item: item.position) == sorted(second, key=lambda item: item.position)


def test_passages_like_the_task_win_and_short_ones_stay(tmp_path: Path) -> None:
    texts = ["soup and bread " * 20, "the gene", "bread " * 30, "the cell has a protein and a gene", "soup"] * 3
    retrieve_texts(tmp_path, texts)
    values = {"name": "dsir", "budget": "6passages", "examples": EXAMPLES * 300}
    kept = run_select(tmp_path, corpus_bytes=1000, **values)[1]
    assert {item.document.text for item in kept} == {"the gene", "the cell has a protein and a gene"}


def test_the_reason_has_weight_and_draw(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, ["the gene", "soup " * 50])
    kept = dsir(tmp_path, None, seed=3)
    assert [item.rank for item in kept] == [1, 2]
    weight = kept[0].score
    assert kept[0].reason == f"dsir: log importance {weight:+.1f}, draw 1 of seed 3; BM25 rank 1 for train-0"
    assert (kept[0].matched_queries, kept[0].matched_count) == (("train-0",), 1)


def test_the_budget_in_bytes_is_exact(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, ["x" * 10] * 20)
    assert len(dsir(tmp_path, "59B")) == 5
    assert len(dsir(tmp_path, "6%")) == 6


def test_drawn_in_proportion_to_the_weights() -> None:
    """The first draw over many seeds follows exp(score)."""
    scores = np.log([1.0, 2.0, 5.0])
    firsts = Counter(
        int(np.argmax(scores + gumbel_noise(draws(["a", "b", "c"], seed, "dsir")))) for seed in range(2000)
    )
    assert [firsts[place] / 2000 for place in range(3)] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.04)


def test_a_task_without_words_weighs_nothing() -> None:
    raw = np.arange(BUCKETS, dtype=np.int64)
    assert np.allclose(log_ratios(np.zeros(BUCKETS, dtype=np.int64), raw), 0)
