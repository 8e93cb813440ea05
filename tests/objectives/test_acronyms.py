"""Pseudo acronyms: positives match, negatives never do, neither class shows on the surface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.objectives.acronyms import FEWEST_WORDS, MOST_WORDS, AcronymMaker, Acronyms
from endtask.objectives.made_stream import NothingToMake
from endtask.records import Document
from endtask.settings import BatchSize
from endtask.text.aligned_pack import pack_aligned
from endtask.text.aligned_texts import AlignedTexts
from tests.aligned_toy import KINDS, LONGEST, make_aligned, make_tokenizer
from tests.objectives.aligned_network import HEAD, make_aligned_network

WORDS = st.lists(st.sampled_from(["ab", "Bob", "cat", "dog", "7up", ",", "."]), min_size=2, max_size=30)


def matches(letters: str, text: str) -> bool:
    """The slow way: all spans of so many words, by the text's own words."""
    words = [word for word in text.replace(",", " ").replace(".", " ").split() if word]
    size = len(letters)
    spans = (words[start : start + size] for start in range(len(words) - size + 1))
    return any("".join(word[0] for word in span).lower() == letters for span in spans)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> AlignedTexts:
    return make_aligned(tmp_path_factory.mktemp("packed"), 40)


def make(texts: AlignedTexts, *, kind: str = "wordpiece", seed: int = 0, size: str = "16", **more: object) -> Acronyms:
    network = make_aligned_network(2, kind=kind)
    network.fixed_shapes = bool(more.get("fixed_shapes"))
    return Acronyms(
        "acronyms", texts, make_tokenizer(kind), network, batch_size=BatchSize.parse(size), seed=seed, head=HEAD
    )


@given(passages=st.lists(WORDS, min_size=2, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_every_positive_matches_a_span_and_no_negative_does(
    passages: list[list[str]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = [" ".join(words) for words in passages]
    documents = [Document(str(number), text, "s") for number, text in enumerate(written)]
    packed = pack_aligned(documents, make_tokenizer(), 400, tmp_path_factory.mktemp("packed"))
    maker, random = AcronymMaker(packed), np.random.default_rng(seed)
    for position in maker.chosen:
        for wanted in (True, False):
            letters, match = maker.make(int(position), wanted, random)
            assert FEWEST_WORDS <= len(letters) <= MOST_WORDS
            assert match == matches(letters, written[packed.documents[position]])
            assert match or not wanted


def test_half_of_each_batch_matches(texts: AlignedTexts) -> None:
    objective = make(texts)
    for step in range(20):
        answers = [match for _, _, match in objective.letters(step)]
        assert abs(sum(answers) - len(answers) / 2) <= 1


def test_neither_length_nor_letters_tell_the_class(texts: AlignedTexts) -> None:
    maker, random = AcronymMaker(texts), np.random.default_rng(0)
    drawn = [maker.make(int(position), wanted, random) for position in maker.chosen for wanted in (True, False) * 20]
    lengths = {match: np.bincount([len(letters) for letters, own in drawn if own == match]) for match in (True, False)}
    share = {match: counts / counts.sum() for match, counts in lengths.items()}
    assert np.abs(share[True] - share[False]).max() < 0.05
    letters = {match: set("".join(letters for letters, own in drawn if own == match)) for match in (True, False)}
    assert letters[True] == letters[False]


def test_half_of_the_negatives_are_mutated_and_half_foreign(
    texts: AlignedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, random = AcronymMaker(texts), np.random.default_rng(0)
    monkeypatch.setattr(maker, "mutate", lambda letters, random: "~" * len(letters))
    monkeypatch.setattr(maker, "_foreign", lambda position, size, random: "#" * size)
    drawn = [maker.make(int(maker.chosen[0]), False, random) for _ in range(1000)]
    assert not any(match for _, match in drawn)
    assert abs(sum(letters[0] == "~" for letters, _ in drawn) / 1000 - 0.5) < 0.05


def test_mutations_change_one_to_all_letters_equally_often(texts: AlignedTexts) -> None:
    maker = AcronymMaker(texts)
    random = np.random.default_rng(1)
    changes = [sum(a != b for a, b in zip("rst", maker.mutate("rst", random), strict=True)) for _ in range(600)]
    assert set(changes) == {1, 2, 3}
    assert all(abs(changes.count(number) / 600 - 1 / 3) < 0.08 for number in (1, 2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_pairs_as_the_tokenizer_frames_them(kind: str, tmp_path: Path) -> None:
    packed, tokenizer = make_aligned(tmp_path, kind=kind), make_tokenizer(kind)
    objective = make(packed, kind=kind)
    batch = objective.batch(2)
    assert batch.labels is not None
    for number, (position, letters, match) in enumerate(objective.letters(2)):
        start, end = batch.offsets[number], batch.offsets[number + 1]
        ids, types = batch.input_ids[start:end].tolist(), batch.token_type_ids[start:end].tolist()
        acronym = tokenizer(letters.upper(), add_special_tokens=False)["input_ids"]
        assert ids == [tokenizer.cls_token_id, *acronym, tokenizer.sep_token_id, *packed[position][1:]]
        assert types == [0] * (len(acronym) + 2) + [1] * (len(ids) - len(acronym) - 2)
        assert batch.labels[number] == int(match)


def test_a_batch_is_a_pure_function_of_seed_and_step(texts: AlignedTexts) -> None:
    one, two = make(texts), make(texts)
    for step in (5, 0, 2):
        assert torch.equal(one.batch(step).input_ids, two.batch(step).input_ids)
    assert one.letters(0) != make(texts, seed=1).letters(0)


def test_batches_by_the_token_keep_their_room(texts: AlignedTexts) -> None:
    objective = make(texts, size="300tok", fixed_shapes=True)
    batches = [objective.batch(step) for step in range(12)]
    assert len({(batch.input_ids.shape, batch.offsets.shape) for batch in batches}) == 1
    assert max(batch.real_tokens for batch in batches) <= 300


def test_the_loss_is_the_mean_over_both_classes(texts: AlignedTexts) -> None:
    objective, network = make(texts), make_aligned_network(2)
    batch = objective.batch(0)
    value = objective.loss(network, batch).total
    assert abs(value.item() - np.log(2)) < 0.05
    assert objective.flops(network, batch) > network.training_flops(batch)


def test_texts_without_words_in_a_row_are_refused(tmp_path: Path) -> None:
    packed = pack_aligned([Document("1", "7 river 8, 9", "s")], make_tokenizer(), LONGEST, tmp_path)
    with pytest.raises(NothingToMake, match="two words in a row"):
        make(packed)


def test_where_no_negative_exists_a_positive_is_given(tmp_path: Path) -> None:
    packed = pack_aligned([Document("1", "river river river", "s")], make_tokenizer(), LONGEST, tmp_path)
    letters, match = AcronymMaker(packed).make(0, False, np.random.default_rng(0))
    assert match
    assert set(letters) == {"r"}
