"""The linear classifier against dense features and plain gradient descent, and as a selector."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.records import Example, Selected
from endtask.selectors.classifier import FEATURES, Linear, features, fit
from endtask.selectors.hashing import word_keys
from tests.selectors.candidates import run_select, write_retrieved
from tests.selectors.texts import EXAMPLES, TEXTS, passages_of, retrieve_texts


def classify(folder: Path, budget: str | None, examples: tuple[Example, ...] = EXAMPLES) -> list[Selected]:
    values = {"name": "classifier", "budget": budget, "examples": examples}
    return run_select(folder, corpus_bytes=1000, **values)[1]


def test_rows_have_length_one_and_empty_texts_none() -> None:
    rows = features(word_keys(["gene gene cell", "", "soup"])).toarray()
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0, 1])
    # gene twice; cell, "gene gene" and "gene cell" once each
    assert sorted(rows[0][rows[0] > 0]) == pytest.approx(np.array([1, 1, 1, 2]) / np.sqrt(7))


def test_against_gradient_descent() -> None:
    task, others = ["gene cell", "the gene", "protein"], ["soup", "bread soup", "goal match", "the match", "cell"]
    rows = np.vstack([features(word_keys(side)).toarray() for side in (task, others)])
    used = np.flatnonzero(rows.any(axis=0))
    inputs = np.hstack([rows[:, used], np.ones((len(rows), 1))])
    sign = np.repeat([1.0, -1.0], [len(task), len(others)])
    balance = np.repeat([4 / 3, 4 / 5], [len(task), len(others)])
    penalty = np.append(np.full(len(used), 1 / 10), 0.0)
    weights = np.zeros(inputs.shape[1])
    for _ in range(20_000):
        pull = balance * sign / (1 + np.exp(sign * (inputs @ weights)))
        weights += 0.1 * (inputs.T @ pull - penalty * weights)
    fitted = fit(word_keys(task), word_keys(others))
    assert fitted.weights[used] == pytest.approx(weights[:-1], abs=2e-2)
    assert fitted.bias == pytest.approx(weights[-1], abs=2e-2)
    assert np.count_nonzero(fitted.weights) <= len(used)


def test_without_a_side_it_says_nothing() -> None:
    nothing = word_keys([])
    for task, others in ((nothing, word_keys(["soup"])), (word_keys(["gene"]), nothing)):
        assert fit(task, others).log_odds(features(word_keys(["gene", "soup"]))).tolist() == [0, 0]


def test_long_texts_do_not_shout() -> None:
    judge = Linear(np.sin(np.arange(FEATURES)), 0.5)
    odds = judge.log_odds(features(word_keys(["gene cell", "soup", "gene cell " * 40])))
    assert len(set(odds.round(6).tolist())) == 3
    assert odds[0] == judge.log_odds(features(word_keys(["gene cell"])))[0], "nor do neighbors in the batch"
    assert abs(odds[2]) < 2, "n-grams of a long text share a length of 1"


def test_what_is_like_the_task_is_kept(tmp_path: Path) -> None:
    texts = ["bread and soup", "a gene of the cell", "soup", "a protein", "bread bread"] * 6
    retrieve_texts(tmp_path, texts)
    kept = classify(tmp_path, "12passages")
    assert {item.document.text for item in kept} == {"a gene of the cell", "a protein"}
    assert sorted(item.rank for item in kept) == list(range(1, 13))
    best = min(kept, key=lambda item: item.rank)
    assert best.score == max(item.score for item in kept)
    assert best.reason.startswith(f"classifier: log odds {best.score:+.2f} to be the task's, rank 1; BM25 rank ")


@given(TEXTS, st.randoms(), st.integers(1, 9))
@settings(max_examples=4)
def test_exact_budgets_whatever_the_order_of_the_candidates(
    texts: list[str], chance: random.Random, budget: int
) -> None:
    passages = passages_of(texts)
    shuffled = list(passages)
    chance.shuffle(shuffled)
    with TemporaryDirectory() as folder:
        first = classify(write_retrieved(Path(folder), passages), f"{budget}passages")
        second = classify(write_retrieved(Path(folder), shuffled), f"{budget}passages")
    assert len(first) == min(budget, len(texts))
    assert sorted(first, key=lambda item: item.position) == sorted(second, key=lambda item: item.position)


def test_a_single_passage_is_kept(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, ["bread"])
    assert [item.score for item in classify(tmp_path, None)] == [0.0]
