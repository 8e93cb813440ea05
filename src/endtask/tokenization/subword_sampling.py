"""Subword regularisation: sample segmentations of words in proportion to their probability (Kudo, 2018).

The tokenizers library can sample too, but its generator cannot be seeded. The weight of a segmentation is the product
of its subwords' probabilities, each to the power alpha: forward sums, then backward sampling. The sums of a word are
cached.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from endtask.errors import InputError
from endtask.records import Document
from endtask.seeds import generator
from endtask.tokenization.aligned_texts import TextEncoder, Tokens, plain_encoder
from endtask.tokenization.special_tokens import marker_pattern

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ALPHA = 0.2
"""A segmentation is sampled in proportion to its probability to this power; 0 is uniform."""
_CACHED_WORDS = 200_000


class SubwordSampler:
    """Samples tokenizations of a text by a unigram tokenizer: alpha 1 is the model itself, smaller is more uniform.

    >>> from endtask.config import TokenizerSettings
    >>> from endtask.tokenization.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["banana bandana"] * 9, TokenizerSettings(kind="unigram", vocab_size=64), 32)
    >>> ids, offsets = SubwordSampler(tokenizer, alpha=0.1)("A banana", np.random.default_rng(1))
    >>> tokenizer.decode(ids), offsets[-1][1]
    ('a banana', 8)
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, alpha: float) -> None:
        self._backend = tokenizer.backend_tokenizer
        model = json.loads(self._backend.to_str())["model"]
        if model["type"] != "Unigram":
            raise InputError(
                f"only a unigram tokenizer can sample subwords, not {model['type']}",
                key="aligned.subword_sampling",
                hint="tokenizer.kind: unigram",
            )
        self._unknown: int = model["unk_id"]
        self._added = {str(token): token_id for token_id, token in tokenizer.added_tokens_decoder.items()}
        vocabulary: list[tuple[str, float]] = model["vocab"]
        self._ids = {subword: index for index, (subword, _) in enumerate(vocabulary) if subword not in self._added}
        self._scores = {subword: alpha * score for subword, score in vocabulary if subword not in self._added}
        self._longest = max(map(len, self._ids))
        # As in the library, an unknown letter has a lower score than any subword.
        self._unknown_score = alpha * (min(score for _, score in vocabulary) - 10.0)
        self._markers = re.compile(f"({marker_pattern(self._added).pattern})")  # in a group, so split() returns them
        self._choices = lru_cache(maxsize=_CACHED_WORDS)(self._forward_sums)

    def __call__(self, text: str, random: np.random.Generator) -> Tokens:
        """Return token ids, and the characters of the text that each token covers."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        offset = 0
        for part in self._markers.split(text):
            if part in self._added:
                ids.append(self._added[part])
                offsets.append((offset, offset + len(part)))
            elif part.strip():
                self._tokenize(part, offset, random, ids, offsets)
            offset += len(part)
        return ids, offsets

    def _tokenize(
        self, part: str, offset: int, random: np.random.Generator, ids: list[int], offsets: list[tuple[int, int]]
    ) -> None:
        from tokenizers import PreTokenizedString, Token

        def tokens_of(word: str) -> list[Token]:
            tokens, start = [], 0
            for subword in self.draw(word, random):
                size = len(subword.encode())
                tokens.append(Token(self._ids.get(subword, self._unknown), subword, (start, start + size)))
                start += size
            return tokens

        string = PreTokenizedString(part)
        string.normalize(self._backend.normalizer.normalize)
        self._backend.pre_tokenizer.pre_tokenize(string)
        string.tokenize(tokens_of)
        encoding = string.to_encoding()
        ids += encoding.ids
        offsets += [(offset + start, offset + end) for start, end in encoding.offsets]

    def draw(self, word: str, random: np.random.Generator) -> list[str]:
        """Sample a segmentation of a word; adjacent letters without a subword form one subword, as in the library."""
        subwords: list[str] = []
        end = len(word)
        choices = self._choices(word)
        while end > 0:
            starts, sums = choices[end]
            start = starts[0] if len(starts) == 1 else starts[bisect_right(sums, random.random())]
            if subwords and subwords[-1] not in self._ids and word[start:end] not in self._ids:
                subwords[-1] = word[start:end] + subwords[-1]
            else:
                subwords.append(word[start:end])
            end = start
        return subwords[::-1]

    def _forward_sums(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return for each end of a subword its possible starts and their cumulative probabilities."""
        logs, choices = [0.0], [([0], [1.0])]
        for end in range(1, len(word) + 1):
            starts = [
                start
                for start in range(max(0, end - self._longest), end)
                if word[start:end] in self._ids or start == end - 1
            ]
            scores = np.array([logs[start] + self._score(word[start:end]) for start in starts])
            highest = float(scores.max())
            weights = np.exp(scores - highest)
            logs.append(highest + float(np.log(weights.sum())))
            sums = np.cumsum(weights / weights.sum())
            sums[-1] = 1.0
            choices.append((starts, sums.tolist()))
        return choices

    def _score(self, subword: str) -> float:
        return self._scores.get(subword, self._unknown_score)


def sampling_encoder(
    tokenizer: PreTrainedTokenizerFast, sources: Collection[str], seed: int, *, alpha: float = ALPHA
) -> TextEncoder:
    """Return an encoder that samples the subwords of texts from some sources.

    The sample of a passage depends on the seed and its id only.
    """
    plain = plain_encoder(tokenizer)
    if not sources:
        return plain
    sampler = SubwordSampler(tokenizer, alpha)

    def encode(documents: list[Document], texts: list[str]) -> list[Tokens]:
        encoded = plain(documents, texts)
        return [
            sampler(text, generator(seed, "subwords", document.id, 0)) if document.source in sources else tokens
            for document, text, tokens in zip(documents, texts, encoded, strict=True)
        ]

    return encode
