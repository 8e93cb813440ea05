"""Pseudo acronyms: positives match, negatives never match, and surface features reveal no class."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import BatchSize
from endtask.encoders.batch import IGNORED
from endtask.encoders.network import Network
from endtask.objectives.alignment.acronyms import (
    FEWEST_WORDS,
    MOST_WORDS,
    SHORTEST,
    AcronymMaker,
    Acronyms,
    GuidedAcronyms,
    cut_texts,
    longest_run,
    whole_texts,
    words_head,
)
from endtask.objectives.alignment.acronyms import LONGEST as LONGEST_PIECE
from endtask.objectives.alignment.pairs import NoUsableTexts, PairClassification
from endtask.records import Document
from endtask.tokenization.aligned_texts import AlignedTexts, pack_aligned
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


def make(
    texts: AlignedTexts,
    *,
    kind: str = "wordpiece",
    seed: int = 0,
    size: str = "16",
    guided: bool = True,
    fixed_shapes: bool = False,
) -> Acronyms:
    network = make_aligned_network(2, kind=kind)
    network.fixed_shapes = fixed_shapes
    batch_size = BatchSize.parse(size)
    made = GuidedAcronyms if guided else Acronyms
    return made("acronyms", texts, make_tokenizer(kind), network, batch_size=batch_size, seed=seed, head=HEAD)


def with_both_heads() -> Network:
    network = make_aligned_network(2)
    config = copy.deepcopy(network.config)
    config.id2label = {0: "no", 1: "yes"}
    network.add_head(words_head(HEAD), network.architecture.token_head(config), seed=2)
    return network


@given(passages=st.lists(WORDS, min_size=2, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_every_positive_matches_a_span_and_no_negative_does(
    passages: list[list[str]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = [" ".join(words) for words in passages]
    documents = [Document(str(number), text, "s") for number, text in enumerate(written)]
    packed = pack_aligned(documents, make_tokenizer(), 400, tmp_path_factory.mktemp("packed"))
    maker, random = AcronymMaker(whole_texts(packed)), np.random.default_rng(seed)
    for segment, text in enumerate(maker.segments.text):
        for wanted in (True, False):
            letters, match = maker.make(segment, wanted, random)
            assert FEWEST_WORDS <= len(letters) <= MOST_WORDS
            assert match == matches(letters, written[packed.documents[text]])
            assert match or not wanted


@given(passages=st.lists(WORDS, min_size=1, max_size=6), seed=st.integers(0, 1000), cut=st.booleans())
@settings(max_examples=20, deadline=None)
def test_pieces_hold_every_token_of_texts_with_words_once(
    passages: list[list[str]], seed: int, cut: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents = [Document(str(number), " ".join(words), "s") for number, words in enumerate(passages)]
    packed = pack_aligned(documents, make_tokenizer(), 400, tmp_path_factory.mktemp("packed"))
    segments = cut_texts(packed, np.random.default_rng(seed)) if cut else whole_texts(packed)
    for text, has_words in enumerate(np.diff(packed.plain_words[1]) > 0):
        own = [token for segment in np.flatnonzero(segments.text == text) for token in segments.token_ids(segment)]
        assert own == (packed[text][1:-1].tolist() if has_words else [])
    assert "".join(map(segments.initials, range(len(segments)))) == packed.initials
    usable = [segment for segment in range(len(segments)) if longest_run(segments.initials(segment)) >= FEWEST_WORDS]
    assert np.array_equal(AcronymMaker(segments).segments.tokens, segments.tokens[usable])


def test_pieces_have_few_words_and_many(tmp_path: Path) -> None:
    documents = [Document(str(number), "river " * 300, "s") for number in range(200)]
    packed = pack_aligned(documents, make_tokenizer(), 400, tmp_path)
    sizes = np.diff(cut_texts(packed, np.random.default_rng(0)).words, axis=1).ravel()
    assert sizes.max() <= LONGEST_PIECE
    assert set(range(SHORTEST, LONGEST_PIECE + 1)) <= set(sizes.tolist())
    halves = [np.mean((sizes >= low) & (sizes < 2 * low)) for low in (4, 8, 16, 32)]
    assert max(halves) - min(halves) < 0.12  # a text's end cuts long ones short


def test_half_of_each_batch_matches(texts: AlignedTexts) -> None:
    objective = make(texts)
    for step in range(20):
        answers = [match for _, _, match in objective.letters(step)]
        assert abs(sum(answers) - len(answers) / 2) <= 1


def test_neither_length_nor_letters_tell_the_class(texts: AlignedTexts) -> None:
    maker, random = AcronymMaker(whole_texts(texts)), np.random.default_rng(0)
    drawn = [
        maker.make(segment, wanted, random) for segment in range(len(maker.segments)) for wanted in (True, False) * 20
    ]
    lengths = {match: np.bincount([len(letters) for letters, own in drawn if own == match]) for match in (True, False)}
    share = {match: counts / counts.sum() for match, counts in lengths.items()}
    assert np.abs(share[True] - share[False]).max() < 0.05
    letters = {match: set("".join(letters for letters, own in drawn if own == match)) for match in (True, False)}
    assert letters[True] == letters[False]


def test_half_of_the_negatives_are_mutated_and_half_from_other_segments(
    texts: AlignedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, random = AcronymMaker(whole_texts(texts)), np.random.default_rng(0)
    monkeypatch.setattr(maker, "mutate", lambda letters, random: "~" * len(letters))
    monkeypatch.setattr(maker, "_from_other_segment", lambda segment, size, random: "#" * size)
    drawn = [maker.make(0, False, random) for _ in range(1000)]
    assert not any(match for _, match in drawn)
    assert abs(sum(letters[0] == "~" for letters, _ in drawn) / 1000 - 0.5) < 0.05


def test_mutations_change_one_to_all_letters_equally_often(texts: AlignedTexts) -> None:
    maker = AcronymMaker(whole_texts(texts))
    random = np.random.default_rng(1)
    changes = [sum(a != b for a, b in zip("rst", maker.mutate("rst", random), strict=True)) for _ in range(600)]
    assert set(changes) == {1, 2, 3}
    assert all(abs(changes.count(number) / 600 - 1 / 3) < 0.08 for number in (1, 2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_pairs_as_the_tokenizer_frames_them(kind: str, tmp_path: Path) -> None:
    packed, tokenizer = make_aligned(tmp_path, kind=kind), make_tokenizer(kind)
    objective = make(packed, kind=kind, guided=False)
    batch = objective.batch(2)
    assert batch.labels is not None
    assert batch.token_labels is None
    for number, (segment, letters, match) in enumerate(objective.letters(2)):
        position = int(objective.maker.segments.text[segment])
        start, end = batch.offsets[number], batch.offsets[number + 1]
        ids, types = batch.input_ids[start:end].tolist(), batch.token_type_ids[start:end].tolist()
        acronym = tokenizer(letters.upper(), add_special_tokens=False)["input_ids"]
        assert ids == [tokenizer.cls_token_id, *acronym, tokenizer.sep_token_id, *packed[position][1:]]
        assert types == [0] * (len(acronym) + 2) + [1] * (len(ids) - len(acronym) - 2)
        assert batch.labels[number] == int(match)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_asked_whether_they_stand_in_the_words_with_these_initials(kind: str, tmp_path: Path) -> None:
    packed, tokenizer = make_aligned(tmp_path, kind=kind), make_tokenizer(kind)
    objective = make(packed, kind=kind)
    batch = objective.batch(1)
    assert batch.token_labels is not None
    positives = 0
    for number, (_, letters, match) in enumerate(objective.letters(1)):
        start, end = batch.offsets[number], batch.offsets[number + 1]
        ids, asked = batch.input_ids[start:end].tolist(), batch.token_labels[start:end].tolist()
        border = ids.index(tokenizer.sep_token_id) + 1
        assert {*asked[:border], asked[-1]} == {IGNORED}
        chosen = [token for token, label in zip(ids, asked, strict=True) if label == 1]
        assert asked[border:-1].count(0) + len(chosen) == len(ids) - border - 1
        assert bool(chosen) == match
        positives += match
        found = re.findall(r"[a-z]+", tokenizer.decode(chosen).lower())
        assert not match or letters in "".join(word[0] for word in found)
    assert positives


def test_all_places_with_these_initials_are_words_that_the_letters_come_from(tmp_path: Path) -> None:
    packed = pack_aligned([Document("1", "river, stone river stone", "s")], make_tokenizer(), LONGEST, tmp_path)
    objective = make(packed)
    assert isinstance(objective, GuidedAcronyms)
    words = packed.plain_words[0][:, :2] - 1
    inside = np.zeros(int(objective.maker.segments.lengths[0]), dtype=np.int64)
    inside[words[0, 0] : words[1, 1]] = inside[words[2, 0] : words[3, 1]] = 1
    assert objective.token_classes(0, "rs").tolist() == inside.tolist()
    assert not objective.token_classes(0, None).any()


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
    objective, network = make(texts, guided=False), make_aligned_network(2)
    batch = objective.batch(0)
    value = objective.loss(network, batch).total / batch.text_share
    assert abs(value.item() - np.log(2)) < 0.05
    assert objective.flops(network, batch) > network.training_flops(batch)


def test_guided_the_losses_of_texts_and_of_tokens_are_added(texts: AlignedTexts) -> None:
    objective, network = make(texts), with_both_heads()
    batch = objective.batch(0)
    loss = objective.loss(network, batch)
    assert objective.heads == (HEAD, words_head(HEAD))
    assert batch.token_labels is not None
    asked = batch.token_labels != IGNORED
    logs = network.heads[words_head(HEAD)](network(batch)).log_softmax(-1)[asked]
    by_hand = -logs[torch.arange(len(logs)), batch.token_labels[asked]].mean()
    assert torch.allclose(loss.parts["words"], by_hand)
    assert torch.allclose(loss.total, batch.text_share * loss.parts["match"] + batch.token_share * by_hand)
    assert objective.flops(network, batch) > PairClassification.flops(objective, network, batch)


def test_texts_without_words_in_a_row_are_refused(tmp_path: Path) -> None:
    packed = pack_aligned([Document("1", "7 river 8, 9", "s")], make_tokenizer(), LONGEST, tmp_path)
    with pytest.raises(NoUsableTexts, match="two words in a row"):
        make(packed)


def test_where_no_negative_exists_a_positive_is_given(tmp_path: Path) -> None:
    packed = pack_aligned([Document("1", "river river river", "s")], make_tokenizer(), LONGEST, tmp_path)
    letters, match = AcronymMaker(whole_texts(packed)).make(0, False, np.random.default_rng(0))
    assert match
    assert set(letters) == {"r"}
