"""Random subwords: the right proportions, the right characters, and the same for a seed."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from endtask.config import TokenizerSettings
from endtask.errors import InputError
from endtask.records import Document
from endtask.tokenization.aligned_texts import pack_aligned
from endtask.tokenization.subword_sampling import SubwordSampler, sampling_encoder
from endtask.tokenization.tokenizer import train_tokenizer
from tests.aligned_toy import LONGEST, make_tokenizer


@cache
def make_pieces() -> PreTrainedTokenizerFast:
    """A tokenizer whose words can be cut in many ways."""
    syllables = ["ri", "ver", "sto", "ne", "clo", "ud", "ver", "ne"]
    words = ["".join(parts) for parts in product(syllables, repeat=3)]
    settings = TokenizerSettings(kind="unigram", vocab_size=160, entity_markers=("[[", "]]"))
    return train_tokenizer([" ".join(words)], settings, 64)


def make_passages() -> list[Document]:
    text = "Riververcloud, stonene riverne. Verstocloud ririver."
    return [Document(f"toy/{number}", text, "toy", links=((0, 13), (15, 30))) for number in range(6)]


def all_cuts(word: str, scores: dict[str, float], alpha: float) -> dict[tuple[str, ...], float]:
    """Every way to cut a word with its probability, by trying all of them."""
    found = {}
    for breaks in product((False, True), repeat=len(word) - 1):
        places = [0, *(place + 1 for place, cut in enumerate(breaks) if cut), len(word)]
        pieces = tuple(word[a:b] for a, b in pairwise(places))
        if all(piece in scores for piece in pieces):
            found[pieces] = np.exp(alpha * sum(scores[piece] for piece in pieces))
    total = sum(found.values())
    return {pieces: value / total for pieces, value in found.items()}


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_cuts_are_drawn_by_their_probability(alpha: float) -> None:
    tokenizer = make_pieces()
    sampler, random = SubwordSampler(tokenizer, alpha), np.random.default_rng(0)
    scores = dict(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"])
    wanted = all_cuts("▁rivernestone", scores, alpha)
    draws = 4000
    counts = Counter(tuple(sampler.draw("▁rivernestone", random)) for _ in range(draws))
    assert len(wanted) > 2
    assert counts.keys() <= wanted.keys()
    for pieces, probability in wanted.items():
        assert abs(counts[pieces] / draws - probability) < 5 * np.sqrt(probability * (1 - probability) / draws) + 1e-3


def test_texts_keep_their_words_and_their_places() -> None:
    tokenizer = make_pieces()
    sampler, text = SubwordSampler(tokenizer, 0.1), "  A ﬁne [[ River ]]  жук, stoneжneжж cloud."
    plain = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    for seed in range(20):
        ids, offsets = sampler(text, np.random.default_rng(seed))
        assert tokenizer.decode(ids).replace(" ", "") == tokenizer.decode(plain.ids).replace(" ", "")
        assert [text[a:b] for token, (a, b) in zip(ids, offsets, strict=True) if token == sampler._added["[["]] == [
            "[["
        ]
        assert all(start <= end for start, end in offsets)
        assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)


def test_the_likeliest_cut_is_the_tokenizers_own_when_all_others_are_rare() -> None:
    tokenizer = make_pieces()
    sampler = SubwordSampler(tokenizer, 1.0)
    sampler._scores = {piece: 50 * score for piece, score in sampler._scores.items()}
    text = make_passages()[0].text
    expected = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    ids, offsets = sampler(text, np.random.default_rng(0))
    assert ids == expected.ids
    assert offsets == expected.offsets


def test_only_named_sources_are_sampled_and_links_survive(tmp_path: Path) -> None:
    tokenizer, documents = make_pieces(), make_passages()
    settings = ("toy",)
    sampled = pack_aligned(documents, tokenizer, 400, tmp_path / "a", encode=sampling_encoder(tokenizer, settings, 1))
    other = ("else",)
    same = pack_aligned(documents, tokenizer, 400, tmp_path / "b", encode=sampling_encoder(tokenizer, other, 1))
    assert len(sampled) == len(same) == 6
    assert sampled.lengths.sum() > same.lengths.sum()
    anchors = {one.text[start:end] for one in documents for start, end in one.links}
    spans = sampled.links
    for position in range(len(sampled)):
        for start, end, whole in spans[position]:
            assert whole
            assert tokenizer.decode(sampled[position][start:end]).strip() in {one.lower() for one in anchors}
    again = pack_aligned(documents, tokenizer, 400, tmp_path / "c", encode=sampling_encoder(tokenizer, settings, 1))
    assert all(np.array_equal(sampled[position], again[position]) for position in range(len(sampled)))
    moved = pack_aligned(documents, tokenizer, 400, tmp_path / "d", encode=sampling_encoder(tokenizer, settings, 2))
    assert any(not np.array_equal(sampled[position], moved[position]) for position in range(len(sampled)))


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(InputError, match=r"unigram tokenizer.*WordPiece"):
        sampling_encoder(make_tokenizer("wordpiece"), ("toy",), 0)


def test_texts_are_cut_to_their_length(tmp_path: Path) -> None:
    tokenizer = make_pieces()
    encode = sampling_encoder(tokenizer, ("toy",), 0, alpha=0.05)
    assert pack_aligned(make_passages(), tokenizer, LONGEST, tmp_path, encode=encode).lengths.max() <= LONGEST
