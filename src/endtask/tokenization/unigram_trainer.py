"""Learn the subwords of a Unigram model by expectation maximisation, with the same bits in every run.

After Kudo (2018), "Subword Regularization": start from all frequent substrings, then alternately re-estimate the count
of each subword and prune those whose removal costs the least likelihood. The library's trainer gives different ids and
scores in every run, even on one thread. Rounding and sorting its output would repair that, but its vocabularies need
more tokens for the same text, and more time. This trainer sorts the words and sums in a fixed order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST_SUBWORD = 16
# Probabilities are multiplied instead of adding logarithms: the product of 24 of the smallest is above zero.
LONGEST_WORD = 24
_MOST_CHARACTERS = 4_000_000
_MOST_CANDIDATES = 1_000_000
_KEEP_PER_ROUND = 0.75
_CELLS_AT_ONCE = 1 << 22

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def learn_subwords(words: Mapping[str, int], alphabet: Sequence[str], size: int) -> list[tuple[str, float]]:
    """Return the `size` best subwords for words and their counts, with log-probabilities, most probable first.

    They include all letters of the alphabet, even beyond `size`.

    >>> [subword for subword, _ in learn_subwords({"banana": 9, "bandana": 5}, "abdn", 6)]
    ['banana', 'bandana', 'a', 'b', 'd', 'n']
    """
    corpus = _to_arrays(_split_words(words, alphabet), alphabet)
    subwords = _candidates(corpus, len(alphabet))
    oversized = max(size * 11 // 10, len(alphabet))
    while True:
        for _ in range(2):
            subwords.counts = _expected_counts(corpus, subwords)
            subwords = subwords.filter(subwords.is_letter | (subwords.counts >= 0.5))
        if len(subwords) <= oversized:
            break
        subwords = _prune(subwords, max(oversized, int(len(subwords) * _KEEP_PER_ROUND)))
    subwords = _prune(subwords, max(size, len(alphabet)))
    # Rounded, since the last bits of a logarithm may differ between processors.
    scores = np.round(np.log(subwords.probabilities()[:-1]), 6).tolist()
    strings = [
        corpus.text[start : start + length] for start, length in zip(subwords.starts, subwords.lengths, strict=True)
    ]
    strings[: len(alphabet)] = alphabet
    return sorted(zip(strings, scores, strict=True), key=lambda subword: (-subword[1], subword[0]))


@dataclass
class _Words:
    """Concatenated words, shorter ones first, with their counts; `letters` are indices into the alphabet."""

    text: str
    letters: IntArray
    lengths: IntArray
    counts: FloatArray


@dataclass
class _Subwords:
    """Subwords, the letters of the alphabet first.

    Subword i has `lengths[i]` characters from `starts[i]` of the words' text (for letters only the length is valid) and
    `counts[i]` occurrences. `matches`, of shape (characters, LONGEST_SUBWORD), is the subword that begins at a
    character and has 1, 2, ... characters; if there is none, the number of subwords, whose probability is 0.
    """

    starts: IntArray
    lengths: IntArray
    counts: FloatArray
    matches: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_letter(self) -> NDArray[np.bool_]:
        letters: NDArray[np.bool_] = self.lengths == 1
        return letters

    def filter(self, mask: NDArray[np.bool_]) -> _Subwords:
        """Return the subwords where the mask is True."""
        if mask.all():
            return self
        number = np.full(len(self) + 1, np.count_nonzero(mask), dtype=np.int32)
        number[:-1][mask] = np.arange(np.count_nonzero(mask))
        return _Subwords(self.starts[mask], self.lengths[mask], self.counts[mask], number[self.matches])

    def probabilities(self) -> FloatArray:
        """Return the probability of each subword, and 0 for none.

        Subtracts 0.5 from each count, which is close to SentencePiece's digamma, by plain arithmetic.
        """
        discounted = np.maximum(self.counts - 0.5, 0.05)
        return np.append(discounted / discounted.sum(), 0.0)


def _split_words(words: Mapping[str, int], alphabet: Sequence[str]) -> dict[str, int]:
    """Split words at characters outside the alphabet and after LONGEST_WORD; return the most frequent parts."""
    outside = {ord(character): "\0" for character in set().union(*words) - set(alphabet)}
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in word.translate(outside).split("\0"):
            for start in range(0, len(part), LONGEST_WORD):
                parts[part[start : start + LONGEST_WORD]] += count
    frequent, characters = {}, 0
    for part in sorted(parts, key=lambda part: (-parts[part], part)):
        characters += len(part)
        if characters > _MOST_CHARACTERS:
            break
        frequent[part] = parts[part]
    return frequent


def _to_arrays(words: Mapping[str, int], alphabet: Sequence[str]) -> _Words:
    ordered = sorted(words, key=lambda word: (len(word), word))
    index = {letter: position for position, letter in enumerate(alphabet)}
    text = "".join(ordered)
    return _Words(
        text,
        np.fromiter((index[character] for character in text), dtype=np.int64, count=len(text)),
        np.array([len(word) for word in ordered], dtype=np.int64),
        np.array([words[word] for word in ordered], dtype=np.float64),
    )


def _candidates(words: _Words, letters: int) -> _Subwords:
    """Return the letters and the substrings with the highest count times length."""
    order, suffixes, shared = _sorted_suffixes(words)
    weights = np.repeat(words.counts, words.lengths)
    repeated = [_repeated(suffixes, shared, weights[order], length) for length in range(2, LONGEST_SUBWORD + 1)]
    starts, lengths, counts = (np.concatenate(columns) for columns in zip(*repeated, strict=True))
    best = np.lexsort((lengths, starts, -counts * lengths))[:_MOST_CANDIDATES]
    starts, lengths, counts = starts[best], lengths[best], counts[best]
    matches = np.full((len(order), LONGEST_SUBWORD), letters + len(best), dtype=np.int32)
    matches[:, 0] = words.letters
    for length in range(2, LONGEST_SUBWORD + 1):
        groups = np.cumsum(shared < length) - 1
        subword_of = np.full(len(order) + 1, letters + len(best), dtype=np.int32)
        same_length = np.flatnonzero(lengths == length)
        subword_of[groups[starts[same_length]]] = letters + same_length
        matches[order, length - 1] = subword_of[groups]
    return _Subwords(
        np.concatenate([np.zeros(letters, dtype=np.int64), order[starts]]),
        np.concatenate([np.ones(letters, dtype=np.int64), lengths]),
        np.concatenate([np.bincount(words.letters, weights, letters), counts * lengths]),
        matches,
    )


def _sorted_suffixes(words: _Words) -> tuple[IntArray, NDArray[np.uint16], IntArray]:
    """Return all suffixes of words, sorted: starts, letters, and the number of letters shared with the previous suffix.

    Letters count from 1 here, and 0 is the end of a word. Suffixes are truncated to LONGEST_SUBWORD letters.
    """
    size = len(words.letters)
    suffix_lengths = np.repeat(np.cumsum(words.lengths), words.lengths) - np.arange(size)
    padded = np.concatenate([words.letters + 1, np.zeros(LONGEST_SUBWORD, dtype=np.int64)]).astype(np.uint16)
    suffixes = np.lib.stride_tricks.sliding_window_view(padded, LONGEST_SUBWORD)[:size].copy()
    suffixes[np.arange(LONGEST_SUBWORD) >= suffix_lengths[:, None]] = 0
    # Four letters of 16 bits make a key of 64.
    keys = suffixes.astype(">u2").view(">u8").astype(np.uint64)  # (characters, LONGEST_SUBWORD / 4)
    order = np.lexsort(keys.T[::-1])
    suffixes = suffixes[order]
    same = np.logical_and.accumulate(suffixes[1:] == suffixes[:-1], axis=1).sum(axis=1)
    return order, suffixes, np.concatenate([np.zeros(min(size, 1), dtype=np.int64), same])


def _repeated(
    suffixes: NDArray[np.uint16], shared: IntArray, weights: FloatArray, length: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the substrings of a length that occur at least twice: first suffix, length, count.

    Omits a substring that is always followed by the same letter, since the longer substring replaces it.
    """
    starts = np.flatnonzero(shared < length)
    counts = np.add.reduceat(weights, starts) if len(starts) else np.zeros(0)
    repeated = (suffixes[starts, length - 1] != 0) & (counts >= 2)
    if length < LONGEST_SUBWORD:
        longer = np.flatnonzero(shared < length + 1)
        members = np.diff(np.append(starts, len(shared)))
        members_of_longer = np.diff(np.append(longer, len(shared)))[np.searchsorted(longer, starts)]
        repeated &= (members != members_of_longer) | (suffixes[starts, length] == 0)
    return starts[repeated], np.full(np.count_nonzero(repeated), length, dtype=np.int64), counts[repeated]


def _expected_counts(words: _Words, subwords: _Subwords) -> FloatArray:
    """Return the expected count of each subword over all segmentations (forward-backward over words of one length)."""
    probabilities = subwords.probabilities()
    expected = np.zeros(len(probabilities))
    for length, counts, matches in _groups(words, subwords):
        cells = probabilities[matches]  # (length, LONGEST_SUBWORD, words)
        forward = np.zeros((length + 1, len(counts)))
        forward[0] = 1.0
        for end in range(1, length + 1):
            for size in range(1, min(LONGEST_SUBWORD, end) + 1):
                forward[end] += forward[end - size] * cells[end - size, size - 1]
        backward = np.zeros((length + 1, len(counts)))
        backward[length] = counts / forward[length]
        for start in reversed(range(length)):
            for size in range(1, min(LONGEST_SUBWORD, length - start) + 1):
                cells[start, size - 1] *= backward[start + size]
                backward[start] += cells[start, size - 1]
            cells[start] *= forward[start]
        expected += np.bincount(matches.ravel(), cells.ravel(), len(expected))
    return expected[:-1]


def _groups(words: _Words, subwords: _Subwords) -> Iterator[tuple[int, FloatArray, NDArray[np.int32]]]:
    """Yield batches of words of one length: length, counts, and matches of shape (length, LONGEST_SUBWORD, words)."""
    offsets = np.concatenate([[0], np.cumsum(words.lengths)])
    for length in np.unique(words.lengths).tolist():
        first, last = np.searchsorted(words.lengths, [length, length + 1]).tolist()
        step = _CELLS_AT_ONCE // (length * LONGEST_SUBWORD)
        for start in range(first, last, step):
            end = min(start + step, last)
            matches = subwords.matches[offsets[start] : offsets[end]].reshape(end - start, length, LONGEST_SUBWORD)
            yield length, words.counts[start:end], np.ascontiguousarray(matches.transpose(1, 2, 0))


def _prune(subwords: _Subwords, count: int) -> _Subwords:
    """Return the `count` subwords whose removal would cost the most likelihood; the first of equals win."""
    if len(subwords) <= count:
        return subwords
    probabilities = subwords.probabilities()
    longer = ~subwords.is_letter
    loss = np.full(len(subwords), np.inf)
    without = _best_alternative(subwords, probabilities)[longer]
    loss[longer] = subwords.counts[longer] * np.log(probabilities[:-1][longer] / without)
    selected = np.zeros(len(subwords), dtype=np.bool_)
    selected[np.argsort(-np.round(loss, 6), kind="stable")[:count]] = True
    return subwords.filter(selected)


def _best_alternative(subwords: _Subwords, probabilities: FloatArray) -> FloatArray:
    """Return the probability of the most probable segmentation of each subword into shorter ones."""
    best = np.zeros(len(subwords))
    for length in range(2, LONGEST_SUBWORD + 1):
        same_length = np.flatnonzero(subwords.lengths == length)
        forward = np.zeros((length + 1, len(same_length)))
        forward[0] = 1.0
        for end in range(1, length + 1):
            for size in range(1, min(end, length - 1) + 1):
                matches = subwords.matches[subwords.starts[same_length] + end - size, size - 1]
                np.maximum(forward[end], forward[end - size] * probabilities[matches], out=forward[end])
        best[same_length] = forward[length]
    return best
