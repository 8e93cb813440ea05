"""What a vocabulary is learned from: a sample of the texts without the marks, its words and its letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from endtask.seeds import generator
from endtask.tokenization.entity_markers import mark_pattern

ALPHABET_LIMIT = 1000
"""Rarer characters than the thousand most frequent become [UNK]; a byte-level vocabulary has no such limit."""


class LearningTexts:
    """Texts to learn from, in their order; they can be read again and again.

    At most `limit` of them are drawn, by the seed. Marks are cut out, since they are tokens already; `change` is what
    the tokenizer will do to a text first.

    >>> list(LearningTexts(["the [[cat]] sat"], markers=["[[", "]]"]))
    ['the ', 'cat', ' sat']
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        limit: int | None = None,
        markers: Sequence[str] = (),
        seed: int = 0,
        change: Callable[[str], str] = str,
    ) -> None:
        if iter(texts) is texts:
            raise TypeError("texts are read several times, which an iterator does not allow: give a list")
        self._texts, self._change = texts, change
        self._markers = mark_pattern(markers) if markers else None
        self._drawn = None if limit is None else _draw(sum(1 for _ in texts), limit, seed)

    def __iter__(self) -> Iterator[str]:
        for position, text in enumerate(self._texts):
            if self._drawn is not None and not self._drawn[position]:
                continue
            pieces = [text] if self._markers is None else filter(None, self._markers.split(text))
            yield from map(self._change, pieces)


def _draw(count: int, limit: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of `count` texts are drawn; by raw numbers of the generator, which are the same in every NumPy release."""
    lots = generator(seed, "tokenizer texts").bit_generator.random_raw(count)
    drawn = np.zeros(count, dtype=np.bool_)
    drawn[np.argsort(lots, kind="stable")[:limit]] = True
    return drawn


def count_words(texts: Iterable[str], pieces_of: Callable[[str], Iterable[str]]) -> Counter[str]:
    """How often each piece of a word occurs, where `pieces_of` normalises a word and may cut it further.

    Words are counted before that work is done, once per different word: it is slow.
    """
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split())
    pieces: Counter[str] = Counter()
    for word, count in words.items():
        for piece in pieces_of(word):
            pieces[piece] += count
    return pieces


def find_alphabet(words: Mapping[str, int]) -> list[str]:
    """The most frequent characters, in the order of their code points.

    >>> find_alphabet({"bab": 2, "a c": 1})
    ['a', 'b', 'c']
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    common = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(character for character in common[:ALPHABET_LIMIT] if not character.isspace())
