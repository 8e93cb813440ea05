"""Near-duplicates, against exact Jaccard indices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from endtask.retrieval import near_duplicates
from endtask.retrieval.near_duplicates import BINS, FEWEST_WORDS, SHINGLE, SIGNATURE, NearDuplicates, banding, sketch

Passage = list[int]


def signatures_of(passages: list[Passage]) -> NDArray[np.uint32]:
    signatures = np.zeros((len(passages), SIGNATURE), dtype=np.uint32)
    for passage, row in zip(passages, signatures, strict=True):
        hashes = (np.asarray(passage, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        sketch(hashes, len(passage), row)
    return signatures


def shingles(passage: Passage) -> set[tuple[int, ...]]:
    length = SHINGLE if len(passage) >= FEWEST_WORDS else len(passage)
    return {tuple(passage[start : start + length]) for start in range(len(passage) - length + 1)} - {()}


def jaccard(one: Passage, other: Passage) -> float:
    both, either = shingles(one) & shingles(other), shingles(one) | shingles(other)
    return len(both) / len(either) if either else 0.0


def estimate(one: Passage, other: Passage) -> float:
    """The share of agreeing bins, of those that one of the two fills."""
    first, second = signatures_of([one, other]).view(np.uint16)
    filled = (first != 0) | (second != 0)
    return float((first == second)[filled].mean())


def changed(passage: Passage, times: int, generator: np.random.Generator) -> Passage:
    """The passage with some words replaced by words that no other passage holds."""
    other = list(passage)
    for place in generator.integers(0, len(passage), times):
        other[place] = int(generator.integers(1 << 40, 1 << 50))
    return other


def random_pairs(words: int, count: int, seed: int) -> list[tuple[Passage, Passage]]:
    generator = np.random.default_rng(seed)
    passages = generator.integers(0, 1 << 30, (count, words)).tolist()
    times = np.maximum(0, generator.integers(-words // 40 - 1, words // 8 + 2, count)).tolist()
    return [(one, changed(one, most, generator)) for one, most in zip(passages, times, strict=True)]


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("words", [30, 80, 300])
def test_against_exact_jaccard_indices(threshold: float, words: int) -> None:
    pairs = random_pairs(words, count=300, seed=words)
    near = NearDuplicates(threshold).add(signatures_of([passage for pair in pairs for passage in pair]))
    assert not near[::2].any()  # the firsts of the pairs have nothing in common
    exact = np.asarray([jaccard(*pair) for pair in pairs])
    alike, unlike = exact >= min(1.0, threshold + 0.1), exact <= threshold - 0.15
    assert alike.sum() >= 20
    assert unlike.sum() >= 5 or threshold == 0.5
    assert near[1::2][alike].mean() >= 0.95
    assert not near[1::2][unlike].any()
    estimated = np.asarray([estimate(*pair) for pair in pairs]) >= threshold
    assert not near[1::2][~estimated].any()
    assert near[1::2][estimated].mean() >= 0.95


@pytest.mark.parametrize("words", [FEWEST_WORDS, 100, 1000, 20_000])
def test_the_estimate_is_close_for_any_length(words: int) -> None:
    pairs = random_pairs(words, count=40 if words < 20_000 else 10, seed=3)
    errors = [estimate(*pair) - jaccard(*pair) for pair in pairs]
    assert abs(float(np.mean(errors))) < 0.03
    assert max(map(abs, errors)) < 0.17  # four standard deviations of 128 bins


def test_alike_a_passage_that_was_not_kept_itself_is_not_enough() -> None:
    first, second, third = (list(range(start, start + 200)) for start in (0, 46, 92))
    assert jaccard(first, second) > 0.6
    assert jaccard(second, third) > 0.6
    assert jaccard(first, third) < 0.4
    assert NearDuplicates(0.5).add(signatures_of([first, second, third])).tolist() == [False, True, False]
    assert NearDuplicates(0.5).add(signatures_of([second, third])).tolist() == [False, True]


PASSAGES = st.lists(
    st.lists(st.integers(0, 3), max_size=8) | st.integers(0, 30).map(lambda first: list(range(first, first + 40))),
    max_size=30,
)


@given(PASSAGES, st.lists(st.integers(0, 30), max_size=4), st.sampled_from([0.5, 0.8, 1.0]))
@settings(max_examples=100, deadline=None)
def test_how_passages_are_dealt_into_batches_does_not_matter(
    passages: list[Passage], borders: list[int], threshold: float
) -> None:
    signatures = signatures_of(passages)
    at_once = NearDuplicates(threshold).add(signatures)
    dealt = NearDuplicates(threshold)
    batches = np.split(signatures, sorted(min(border, len(passages)) for border in borders))
    assert np.concatenate([dealt.add(batch) for batch in batches]).tolist() == at_once.tolist()


def test_tables_grow() -> None:
    passages = np.random.default_rng(5).integers(0, 1 << 30, (4000, 30)).tolist()
    signatures = signatures_of(passages)
    near = NearDuplicates(0.8)
    assert not any(near.add(batch).any() for batch in np.array_split(signatures, 7))
    assert near.add(signatures[::-1]).all()


@given(st.lists(st.lists(st.integers(0, 1), max_size=FEWEST_WORDS - 1), max_size=12))
@settings(max_examples=200, deadline=None)
def test_short_passages_are_alike_only_if_equal(passages: list[Passage]) -> None:
    expected = [bool(passage) and passage in passages[:place] for place, passage in enumerate(passages)]
    assert NearDuplicates(0.3).add(signatures_of(passages)).tolist() == expected


def test_one_other_word_in_a_short_passage_keeps_it_and_in_a_long_one_does_not() -> None:
    for words, is_near in ((FEWEST_WORDS - 1, False), (FEWEST_WORDS, True)):
        passage = list(range(words))
        assert NearDuplicates(0.5).add(signatures_of([passage, [*passage[:-1], 99]])).tolist() == [False, is_near]


def test_empty_passages_are_never_alike() -> None:
    signatures = signatures_of([[], [], [1], []])
    assert not signatures[[0, 1, 3]].any()
    assert not NearDuplicates(0.8).add(signatures).any()
    assert NearDuplicates(0.8).add(signatures[:0]).shape == (0,)


def test_the_signature_sees_only_the_words_of_the_passage() -> None:
    words = np.arange(40, dtype=np.uint64)
    rows = np.full((2, SIGNATURE), 7, dtype=np.uint32)
    sketch(words, 25, rows[0])
    sketch(words[:25], 25, rows[1])
    assert np.array_equal(rows[0], rows[1])


@pytest.mark.parametrize("words", [10, 25])
def test_every_word_counts(words: int) -> None:
    passage = list(range(words))
    others = [[*passage[:place], 99, *passage[place + 1 :]] for place in range(words)]
    signatures = signatures_of([passage, *others])
    assert (signatures[1:] != signatures[0]).any(axis=1).all()


def test_order_of_words_counts() -> None:
    words = list(range(100))
    assert not NearDuplicates(0.5).add(signatures_of([words, words[::-1]])).any()


def test_a_band_that_many_share_stays_quick_and_finds_the_earliest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "banding", lambda threshold: (2, 2))
    generator = np.random.default_rng(0)
    signatures = generator.integers(1, 1 << 32, (200, SIGNATURE), dtype=np.uint32)
    signatures[:, :2] = 0x00010001  # both bands are the same in all of them, and nothing else is
    near = NearDuplicates(0.8)
    assert not near.add(signatures).any()
    found = near.add(signatures)
    assert found[:64].all()
    assert not found[64:].any()


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])
def test_bands_fit_and_miss_few(threshold: float) -> None:
    rows, bands = banding(threshold)
    assert rows * bands <= BINS
    assert rows >= 2
    missed = (1 - threshold**rows) ** bands
    assert missed <= 0.02 or threshold < 0.3
    assert bands <= 16 or threshold < 0.5
