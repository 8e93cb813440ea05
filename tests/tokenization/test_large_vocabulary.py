"""Vocabularies of more than 65,536 tokens: no token id is truncated to two bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from endtask.config import ModelSettings, TokenizerSettings
from endtask.encoders.batch import Layout, lay_out
from endtask.encoders.network import build_network
from endtask.objectives.masking import Masking, rare_token_weights
from endtask.records import Document
from endtask.tokenization.aligned_texts import pack_aligned
from endtask.tokenization.packed_texts import PackedTexts, pack_passages, write_packed
from endtask.tokenization.subword_sampling import sampling_encoder
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

TWO_BYTES = 1 << 16
VOCABULARY = 111_000
LETTERS = "abcdefghijklmnopqrstuvwxyzбвгджзиклмнпрст"
WORDS = ["".join(letters) for letters in product(LETTERS, repeat=3)]
"""More than 65,536 words; a vocabulary with room for all of them makes a token of each."""
LAST = WORDS[-200:]
"""Pieces that come late, and have high numbers."""
SPECIAL = (0, 1, 2, 3, 4)
NUMBERS = st.integers(len(SPECIAL), VOCABULARY - 1)


@cache
def learned(kind: str) -> PreTrainedTokenizerFast:
    # Twice, because of what occurs once Unigram makes no piece.
    chosen = TokenizerSettings.model_validate({"kind": kind, "vocab_size": VOCABULARY})
    return train_tokenizer([" ".join(WORDS)] * 2, chosen, 64)


def packed_numbers(texts: list[list[int]], folder: Path) -> PackedTexts:
    return write_packed(((ids, len(ids)) for ids in texts), VOCABULARY, folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wordpiece", pytest.param("unigram", marks=pytest.mark.long)])
def test_learned_saved_loaded_and_packed_tokens_keep_their_numbers(tmp_path: Path, kind: str) -> None:
    tokenizer = learned(kind)
    assert TWO_BYTES < len(WORDS) < len(tokenizer) < VOCABULARY, "all words, and no more than there are"
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    texts = [" ".join(WORDS[:300]), " ".join(LAST)]
    expected = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    assert max(map(max, expected)) >= TWO_BYTES
    assert [tokenizer.decode(ids).split() for ids in expected] == [text.split() for text in texts]
    save_tokenizer(tokenizer, tmp_path / "tokenizer")
    for loaded in (load_tokenizer(tmp_path / "tokenizer"), AutoTokenizer.from_pretrained(str(tmp_path / "tokenizer"))):
        assert len(loaded) == len(tokenizer)
        assert loaded(texts, add_special_tokens=False, verbose=False)["input_ids"] == expected
    packed = pack_passages(texts, tokenizer, 1000, tmp_path / "packed")
    assert [PackedTexts(tmp_path / "packed")[n].tolist()[1:-1] for n in range(len(packed))] == expected


@pytest.mark.slow
def test_words_cut_at_random_are_the_same_words_and_the_same_for_a_seed(tmp_path: Path) -> None:
    tokenizer = learned("unigram")
    documents = [Document(f"toy/{number}", " ".join(LAST), "toy") for number in range(3)]

    def pack(name: str, seed: int) -> list[list[int]]:
        encode = sampling_encoder(tokenizer, ("toy",), seed, alpha=0.5)
        packed = pack_aligned(documents, tokenizer, 2000, tmp_path / name, encode=encode)
        return [packed[position].tolist() for position in range(len(packed))]

    copies = pack("a", 1)
    assert len({tuple(ids) for ids in copies}) == 3, "each is cut in its own way"
    assert all(tokenizer.decode(ids, skip_special_tokens=True).split() == LAST for ids in copies)
    assert max(map(max, copies)) >= TWO_BYTES
    assert pack("b", 1) == copies != pack("c", 2)


@given(texts=st.lists(st.lists(NUMBERS, min_size=1, max_size=12), min_size=1, max_size=6))
@settings(max_examples=40)
def test_packed_numbers_come_back_and_are_counted(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]
) -> None:
    packed = packed_numbers(texts, tmp_path_factory.mktemp("packed"))
    assert [packed[position].tolist() for position in range(len(packed))] == texts
    backwards, _ = packed.gather(np.arange(len(texts))[::-1])
    assert backwards.tolist() == [number for ids in texts[::-1] for number in ids]
    counts = Counter(number for ids in texts for number in ids)
    found = packed.token_counts(VOCABULARY)
    assert {int(number): int(found[number]) for number in np.flatnonzero(found)} == counts
    weights = rare_token_weights(found, 0.5)
    assert len(weights) == VOCABULARY
    assert all(weights[number] == pytest.approx(count**-0.5) for number, count in counts.items())


def test_masks_hide_and_swap_in_tokens_of_any_number(tmp_path: Path) -> None:
    texts = np.random.default_rng(0).integers(len(SPECIAL), VOCABULARY, size=(50, 40)).tolist()
    batch = lay_out(packed_numbers(texts, tmp_path), np.arange(len(texts)), Layout(0, 40))
    rule = Masking(0.5, mask_id=4, vocabulary=VOCABULARY, special_ids=SPECIAL)
    before = batch.input_ids.tolist()
    hidden = rule.apply(batch, np.random.default_rng(1))
    assert hidden.masked_positions is not None
    assert hidden.masked_targets is not None
    places, after = hidden.masked_positions.tolist(), hidden.input_ids.tolist()
    assert hidden.masked_targets.tolist() == [before[place] for place in places]
    open_places = sorted(set(range(len(before))) - set(places))
    assert [after[place] for place in open_places] == [before[place] for place in open_places]
    swapped = [after[place] for place in places if after[place] != 4]
    # Drawn from all alike: the share of high numbers is theirs in the vocabulary.
    high = sum(number >= TWO_BYTES for number in swapped) / len(swapped)
    assert abs(high - (1 - TWO_BYTES / VOCABULARY)) < 0.1


def test_rare_tokens_of_high_numbers_are_masked_first(tmp_path: Path) -> None:
    """Weights are looked up by the whole number: 70,000 is rare, what its last two bytes say is not."""
    rare, common = 70_000, 70_000 - TWO_BYTES
    batch = lay_out(packed_numbers([[rare, *[common] * 99]], tmp_path), np.array([0]), Layout(0, 100))
    weights = np.zeros(VOCABULARY)
    weights[rare], weights[common] = 1.0, 1e-9
    rule = Masking(0.01, mask_id=4, vocabulary=VOCABULARY, special_ids=SPECIAL, weights=weights)
    hidden = rule.apply(batch, np.random.default_rng(0))
    assert hidden.masked_targets is not None
    assert hidden.masked_targets.tolist() == [rare]


def test_word_vectors_of_high_numbers_are_read_and_predicted(tmp_path: Path) -> None:
    high, low = 70_000, 70_000 - TWO_BYTES
    sizes = ModelSettings(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, dropout=0.0)
    special = {"pad": 0, "cls": 2, "sep": 3}
    network = build_network(sizes, vocabulary=VOCABULARY, special_ids=special, labels=("a", "b"), seed=0)
    packed = packed_numbers([[2, high, 9, 3], [2, low, 9, 3]], tmp_path)
    one, other = (network(lay_out(packed, np.array([place]), Layout(0, 8))) for place in range(2))
    assert not torch.allclose(one, other), "they are not one word"
    one.square().sum().backward()
    gradient = network.embeddings.grad
    assert gradient is not None
    assert torch.count_nonzero(gradient[high]) > 0
    assert torch.count_nonzero(gradient[low]) == 0
    batch = replace(
        lay_out(packed, np.array([0]), Layout(0, 8)),
        masked=1,
        masked_positions=torch.tensor([1]),
        masked_targets=torch.tensor([high]),
    )
    chances = torch.log_softmax(network.masked_logits(one, torch.tensor([1])), dim=-1)  # (1, vocabulary)
    assert network.masked_lm_loss(one, batch).item() == pytest.approx(-chances[0, high].item())
