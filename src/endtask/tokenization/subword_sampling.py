"""Subword regularisation: words cut at random in proportion to the probability of each cut (Kudo, 2018).

The library can sample too, but draws from a generator of its own that no seed reaches. Here every way to cut a word is
weighed by the product of its pieces' probabilities, each to the power alpha: sums from the left, then a draw from the
right. Words are weighed once and drawn from as often as they occur.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from endtask.config.aligned import SubwordSamplingSettings
from endtask.errors import InputError
from endtask.records import Document
from endtask.seeds import generator
from endtask.tokenization.aligned_texts import Cutter, Tokens, plain_cutter
from endtask.tokenization.entity_markers import mark_pattern

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_KEY = "aligned.subword_sampling"
_WORDS_KEPT = 200_000


class SubwordSampler:
    """Draws of a unigram tokenizer's tokens for a text; with alpha 1 by the model itself, smaller: more alike.

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
                f"words can be cut at random by a unigram tokenizer only, not by {model['type']}",
                key=f"{_KEY}.sources",
                hint="tokenizer.kind: unigram",
            )
        self._unknown: int = model["unk_id"]
        self._added = {str(token): number for number, token in tokenizer.added_tokens_decoder.items()}
        vocabulary: list[tuple[str, float]] = model["vocab"]
        self._numbers = {piece: number for number, (piece, _) in enumerate(vocabulary) if piece not in self._added}
        self._scores = {piece: alpha * score for piece, score in vocabulary if piece not in self._added}
        self._longest = max(map(len, self._numbers))
        # As in the library, an unknown letter is worth less than any piece.
        self._unknown_score = alpha * (min(score for _, score in vocabulary) - 10.0)
        self._markers = re.compile(f"({mark_pattern(self._added).pattern})")  # split() then gives the marks too
        self._choices = lru_cache(maxsize=_WORDS_KEPT)(self._weigh)

    def __call__(self, text: str, random: np.random.Generator) -> Tokens:
        """Token ids, and the characters of the text that each stands for."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        place = 0
        for part in self._markers.split(text):
            if part in self._added:
                ids.append(self._added[part])
                offsets.append((place, place + len(part)))
            elif part.strip():
                self._cut(part, place, random, ids, offsets)
            place += len(part)
        return ids, offsets

    def _cut(
        self, part: str, place: int, random: np.random.Generator, ids: list[int], offsets: list[tuple[int, int]]
    ) -> None:
        from tokenizers import PreTokenizedString, Token

        def tokens_of(word: str) -> list[Token]:
            found, start = [], 0
            for piece in self.draw(word, random):
                size = len(piece.encode())
                found.append(Token(self._numbers.get(piece, self._unknown), piece, (start, start + size)))
                start += size
            return found

        string = PreTokenizedString(part)
        string.normalize(self._backend.normalizer.normalize)
        self._backend.pre_tokenizer.pre_tokenize(string)
        string.tokenize(tokens_of)
        encoding = string.to_encoding()
        ids += encoding.ids
        offsets += [(place + start, place + end) for start, end in encoding.offsets]

    def draw(self, word: str, random: np.random.Generator) -> list[str]:
        """One way to cut a word; letters without a piece are one piece together, as in the library."""
        pieces: list[str] = []
        end = len(word)
        choices = self._choices(word)
        while end > 0:
            starts, sums = choices[end]
            start = starts[0] if len(starts) == 1 else starts[bisect_right(sums, random.random())]
            if pieces and pieces[-1] not in self._numbers and word[start:end] not in self._numbers:
                pieces[-1] = word[start:end] + pieces[-1]
            else:
                pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _weigh(self, word: str) -> list[tuple[list[int], list[float]]]:
        """For each end of a piece, where the last piece may start, and the running sum of their probabilities."""
        logs, choices = [0.0], [([0], [1.0])]
        for end in range(1, len(word) + 1):
            starts = [
                start
                for start in range(max(0, end - self._longest), end)
                if word[start:end] in self._numbers or start == end - 1
            ]
            scores = np.array([logs[start] + self._score(word[start:end]) for start in starts])
            highest = float(scores.max())
            weights = np.exp(scores - highest)
            logs.append(highest + float(np.log(weights.sum())))
            sums = np.cumsum(weights / weights.sum())
            sums[-1] = 1.0
            choices.append((starts, sums.tolist()))
        return choices

    def _score(self, piece: str) -> float:
        return self._scores.get(piece, self._unknown_score)


def sampling_cutter(tokenizer: PreTrainedTokenizerFast, settings: SubwordSamplingSettings, seed: int) -> Cutter:
    """Texts of the named sources are cut at random, in several copies; all others once and as always.

    The draws of a passage depend on the seed and its id alone.
    """
    plain = plain_cutter(tokenizer)
    if not settings.sources:
        return plain
    sampler, chosen = SubwordSampler(tokenizer, settings.alpha), frozenset(settings.sources)

    def cut(documents: list[Document], texts: list[str]) -> list[list[Tokens]]:
        cut_as_always = plain(documents, texts)
        return [
            [sampler(text, generator(seed, "subwords", document.id, copy)) for copy in range(settings.copies)]
            if document.source in chosen
            else tokens
            for document, text, tokens in zip(documents, texts, cut_as_always, strict=True)
        ]

    return cut
