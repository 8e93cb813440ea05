"""Entity markers: one token each, in every kind of tokenizer and any context."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from endtask.config import TokenizerSettings
from endtask.errors import InputError
from endtask.tokenization.special_tokens import add_markers
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from tests.tiny import MAX_LENGTH, make_texts

KINDS = ("wordpiece", "bpe", "unigram")
MARKERS = ("[[", "]]", "<<", ">>", "@GENE$", "ent1")


@cache
def marked(kind: str) -> PreTrainedTokenizerFast:
    texts = [*make_texts(60), "we gave [[ aspirin ]] against << pain >> @GENE$ ENT1", "[[[ river ]]] a<<b ENT1 Ent1"]
    return train_tokenizer(
        texts, TokenizerSettings.model_validate({"kind": kind, "entity_markers": MARKERS}), MAX_LENGTH
    )


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_markers_follow_the_special_tokens_and_are_not_special(kind: str) -> None:
    tokenizer = marked(kind)
    assert [ids_of(tokenizer, mark) for mark in MARKERS] == [[5 + position] for position in range(len(MARKERS))]
    # Masking leaves out all_special_ids: a mark may be hidden and guessed like any other token.
    assert not {5 + position for position in range(len(MARKERS))} & set(tokenizer.all_special_ids)


@pytest.mark.parametrize("kind", KINDS)
@given(parts=st.lists(st.sampled_from(MARKERS) | st.text("ab éZ[<1@.", max_size=8), max_size=8))
@settings(max_examples=40)
def test_each_marker_in_a_text_is_one_token(kind: str, parts: list[str]) -> None:
    # Blanks between the parts: "[" beside "[[" would leave open which two brackets are the mark.
    tokenizer = marked(kind)
    text = " ".join(parts)
    ids = ids_of(tokenizer, text)
    for position, mark in enumerate(MARKERS):
        assert ids.count(5 + position) == text.count(mark), mark


@pytest.mark.parametrize("kind", KINDS)
def test_a_marker_in_other_case_is_other_text(kind: str) -> None:
    tokenizer = marked(kind)
    assert 9 not in ids_of(tokenizer, "@gene$")
    assert ids_of(tokenizer, "@GENE$") == [9]


def test_letters_that_fold_to_a_marker_are_not_the_marker_of_a_unigram_model() -> None:
    texts = ["preENTITY unENTITY reENTITY misENTITY"] * 20
    tokenizer = train_tokenizer(
        texts, TokenizerSettings(kind="unigram", vocab_size=64, entity_markers=("entity",)), MAX_LENGTH
    )
    assert 5 not in ids_of(tokenizer, "preENTITY coENTITY")
    assert 5 in ids_of(tokenizer, "pre entity")
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_learned_is_the_text_between_markers(kind: str) -> None:
    texts = ["[[river]] <<stone>>"] * 5
    chosen = TokenizerSettings.model_validate({"kind": kind, "vocab_size": 300, "entity_markers": MARKERS})
    vocabulary = train_tokenizer(texts, chosen, MAX_LENGTH).get_vocab()
    assert not [token for token in vocabulary if token not in MARKERS and ("[[" in token or "<<" in token)]
    assert any("river" in token for token in vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_markers_survive_saving_and_decoding(kind: str, tmp_path: Path) -> None:
    save_tokenizer(marked(kind), tmp_path)
    loaded = load_tokenizer(tmp_path)
    text = "[[ river ]] and<<stone>> @GENE$"
    assert ids_of(loaded, text) == ids_of(marked(kind), text)
    decoded = loaded.decode(ids_of(loaded, text), skip_special_tokens=True)
    assert all(mark in decoded for mark in ("[[", "]]", "<<", ">>", "@GENE$"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_given_tokenizer_gets_the_markers_it_lacks(kind: str, tmp_path: Path) -> None:
    plain = TokenizerSettings.model_validate({"kind": kind, "vocab_size": 300, "entity_markers": ("[[",)})
    save_tokenizer(train_tokenizer(make_texts(60), plain, MAX_LENGTH), tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    before = len(tokenizer)
    add_markers(tokenizer, ["[[", "]]"])
    assert len(tokenizer) == before + 1
    assert ids_of(tokenizer, "[[river]]")[:1] == [5]
    assert ids_of(tokenizer, "[[river]]")[-1:] == [before]


@pytest.mark.parametrize(
    ("markers", "message"),
    [
        ((""), "'' is empty or has blanks at its ends"),
        ((" [["), "' \\[\\[' is empty or has blanks at its ends"),
        (("[MASK]"), "'\\[MASK\\]' is a special token already"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_marker_that_cannot_be_one_is_refused(kind: str, markers: str, message: str) -> None:
    chosen = TokenizerSettings.model_validate({"kind": kind, "entity_markers": ("<<", markers)})
    with pytest.raises(InputError, match=f"key 'tokenizer.entity_markers': {message}"):
        train_tokenizer(make_texts(5), chosen, MAX_LENGTH)


def test_a_marker_named_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"'\[\[' is named twice"):
        train_tokenizer(make_texts(5), TokenizerSettings(entity_markers=("[[", "<<", "[[")), MAX_LENGTH)


def test_a_sign_that_spells_a_byte_is_refused_for_bpe_only() -> None:
    # The bytes of "ç" are spelled "Ã§" there: the mark "§" would be found inside that letter.
    with pytest.raises(InputError, match=r"'§' also encodes bytes"):
        train_tokenizer(make_texts(5), TokenizerSettings(kind="bpe", entity_markers=("§",)), MAX_LENGTH)
    for kind in ("wordpiece", "unigram"):
        chosen = TokenizerSettings.model_validate({"kind": kind, "entity_markers": ("§",)})
        tokenizer = train_tokenizer([*make_texts(5), "ç § ç"], chosen, MAX_LENGTH)
        assert ids_of(tokenizer, "ç§ç").count(5) == 1
    with pytest.raises(InputError, match=r"'§' also encodes bytes"):
        add_markers(marked("bpe"), ["§"])


def test_a_special_token_of_a_given_tokenizer_is_no_marker(tmp_path: Path) -> None:
    save_tokenizer(marked("wordpiece"), tmp_path)
    with pytest.raises(InputError, match=r"'\[CLS\]' is a special token already"):
        add_markers(load_tokenizer(tmp_path), ["[CLS]"])
