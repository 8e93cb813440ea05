"""Pairs of sentences: half are consecutive, half are not, and lengths reveal nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import BatchSize
from endtask.objectives.alignment.next_sentence import NextSentence
from endtask.objectives.alignment.pairs import NoUsableTexts, half_of
from endtask.records import Document
from endtask.tokenization.aligned_texts import AlignedTexts, pack_aligned
from tests.aligned_toy import LONGEST, make_aligned, make_tokenizer
from tests.objectives.aligned_network import HEAD, make_aligned_network


def make(texts: AlignedTexts, seed: int = 0) -> NextSentence:
    network, size = make_aligned_network(2), BatchSize.parse("8")
    return NextSentence("nsp", texts, make_tokenizer(), network, batch_size=size, seed=seed, head=HEAD)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> AlignedTexts:
    return make_aligned(tmp_path_factory.mktemp("packed"), 30)


def test_positives_are_one_piece_and_negatives_of_two_documents(texts: AlignedTexts) -> None:
    objective = make(texts)
    for step in range(10):
        for first, second, (place, other), follows in objective.pairs(step):
            whole = texts[place][1:-1].tolist()
            assert whole[: len(first)] == first.tolist()
            if follows:
                assert whole[len(first) : len(first) + len(second)] == second.tolist()
                assert place == other
            else:
                assert texts.documents[place] != texts.documents[other]
            assert len(second) > 0
            starts = texts.sentences[other]
            assert any(texts[other][start : start + len(second)].tolist() == second.tolist() for start in starts)


def test_classes_are_even_and_lengths_do_not_tell_them(texts: AlignedTexts) -> None:
    objective = make(texts)
    pairs = [pair for step in range(60) for pair in objective.pairs(step)]
    follows = np.array([pair[3] for pair in pairs])
    assert abs(follows.mean() - 0.5) < 0.02
    lengths = np.array([len(second) for _, second, _, _ in pairs])
    assert abs(lengths[follows].mean() - lengths[~follows].mean()) < 1.0


@given(st.integers(0, 200), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_half_of_any_number_is_positive(count: int, seed: int) -> None:
    positive = half_of(count, np.random.default_rng(seed))
    assert len(positive) == count
    assert abs(2 * int(positive.sum()) - count) <= 1


def test_inputs_have_token_types_and_fit(texts: AlignedTexts) -> None:
    objective = make(texts)
    batch = objective.batch(3)
    assert int(batch.offsets.diff().max()) <= LONGEST
    for number, (first, second, _, follows) in enumerate(objective.pairs(3)):
        types = batch.token_type_ids[batch.offsets[number] : batch.offsets[number + 1]]
        assert types.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert batch.labels is not None
        assert batch.labels[number] == int(follows)


def test_a_batch_is_a_pure_function_of_seed_and_step(texts: AlignedTexts) -> None:
    one, two = make(texts), make(texts)
    for step in (4, 0):
        assert torch.equal(one.batch(step).input_ids, two.batch(step).input_ids)
    assert not torch.equal(one.batch(0).input_ids, make(texts, seed=1).batch(0).input_ids)


def test_one_document_or_single_sentences_are_refused(tmp_path: Path) -> None:
    one = pack_aligned([Document("1", "River stone. Green cloud.", "s")], make_tokenizer(), LONGEST, tmp_path / "a")
    short = [Document(str(number), "River stone.", "s") for number in range(3)]
    for texts in (one, pack_aligned(short, make_tokenizer(), LONGEST, tmp_path / "b")):
        with pytest.raises(NoUsableTexts, match="two documents"):
            make(texts)
