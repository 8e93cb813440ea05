"""Learn the pieces of a Unigram model by expectation maximisation, to the same bits at every run.

After Kudo (2018), "Subword Regularization": start from all frequent substrings, then in turn re-estimate how often each
piece is used and drop those that are missed least. The library's own trainer gives other ids and scores at every run,
on one thread too. That alone could be mended by rounding and sorting what it returns; it is not used because its
vocabularies need more tokens for the same text, and more time. Here words are sorted and all sums have one order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST_PIECE = 16
# Probabilities are multiplied, never added as logarithms: 24 of the smallest are still a number above zero.
LONGEST_WORD = 24
_MOST_CHARACTERS = 4_000_000
_MOST_CANDIDATES = 1_000_000
_KEPT_PER_ROUND = 0.75
_CELLS_AT_ONCE = 1 << 22

Whole = NDArray[np.int64]
Real = NDArray[np.float64]


def learn_pieces(words: Mapping[str, int], alphabet: Sequence[str], size: int) -> list[tuple[str, float]]:
    """The `size` best pieces for words and their counts, with log-probabilities, the likeliest first.

    All letters of the alphabet are among them, even if that makes more than `size`.

    >>> [piece for piece, _ in learn_pieces({"banana": 9, "bandana": 5}, "abdn", 6)]
    ['banana', 'bandana', 'a', 'b', 'd', 'n']
    """
    laid_out = _lay_out(_cut(words, alphabet), alphabet)
    pieces = _candidates(laid_out, len(alphabet))
    roomy = max(size * 11 // 10, len(alphabet))
    while True:
        for _ in range(2):
            pieces.counts = _expected_counts(laid_out, pieces)
            pieces = pieces.keep(pieces.is_letter | (pieces.counts >= 0.5))
        if len(pieces) <= roomy:
            break
        pieces = _drop_least_missed(pieces, max(roomy, int(len(pieces) * _KEPT_PER_ROUND)))
    pieces = _drop_least_missed(pieces, max(size, len(alphabet)))
    # Rounded: the last bits of a logarithm may differ between processors.
    scores = np.round(np.log(pieces.probabilities()[:-1]), 6).tolist()
    strings = [
        laid_out.text[start : start + length] for start, length in zip(pieces.starts, pieces.lengths, strict=True)
    ]
    strings[: len(alphabet)] = alphabet
    return sorted(zip(strings, scores, strict=True), key=lambda piece: (-piece[1], piece[0]))


@dataclass
class _Words:
    """Words end to end, shorter ones first, with how often each occurs; `letters` are numbers in the alphabet."""

    text: str
    letters: Whole
    lengths: Whole
    counts: Real


@dataclass
class _Pieces:
    """Pieces, the letters of the alphabet first.

    Piece i is `lengths[i]` characters of the words' text from `starts[i]` on (for letters only the length holds), used
    `counts[i]` times. `matches`, of shape (characters, LONGEST_PIECE), says which piece begins at a character with 1,
    2, ... characters; where none does, it holds the number of pieces, whose probability is 0.
    """

    starts: Whole
    lengths: Whole
    counts: Real
    matches: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_letter(self) -> NDArray[np.bool_]:
        letters: NDArray[np.bool_] = self.lengths == 1
        return letters

    def keep(self, kept: NDArray[np.bool_]) -> _Pieces:
        """Only the marked pieces."""
        if kept.all():
            return self
        number = np.full(len(self) + 1, np.count_nonzero(kept), dtype=np.int32)
        number[:-1][kept] = np.arange(np.count_nonzero(kept))
        return _Pieces(self.starts[kept], self.lengths[kept], self.counts[kept], number[self.matches])

    def probabilities(self) -> Real:
        """Of each piece, and 0 for none.

        Half a use is taken off each count, which is close to what SentencePiece's digamma does, by plain arithmetic.
        """
        discounted = np.maximum(self.counts - 0.5, 0.05)
        return np.append(discounted / discounted.sum(), 0.0)


def _cut(words: Mapping[str, int], alphabet: Sequence[str]) -> dict[str, int]:
    """Words without characters outside the alphabet, long ones in stretches; of too many, the most frequent."""
    outside = {ord(character): "\0" for character in set().union(*words) - set(alphabet)}
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in word.translate(outside).split("\0"):
            for start in range(0, len(part), LONGEST_WORD):
                parts[part[start : start + LONGEST_WORD]] += count
    kept, characters = {}, 0
    for part in sorted(parts, key=lambda part: (-parts[part], part)):
        characters += len(part)
        if characters > _MOST_CHARACTERS:
            break
        kept[part] = parts[part]
    return kept


def _lay_out(words: Mapping[str, int], alphabet: Sequence[str]) -> _Words:
    ordered = sorted(words, key=lambda word: (len(word), word))
    number = {letter: position for position, letter in enumerate(alphabet)}
    text = "".join(ordered)
    return _Words(
        text,
        np.fromiter((number[character] for character in text), dtype=np.int64, count=len(text)),
        np.array([len(word) for word in ordered], dtype=np.int64),
        np.array([words[word] for word in ordered], dtype=np.float64),
    )


def _candidates(words: _Words, letters: int) -> _Pieces:
    """The letters and the most promising substrings: those with the highest count times length."""
    order, suffixes, shared = _sorted_suffixes(words)
    weights = np.repeat(words.counts, words.lengths)
    found = [_repeated(suffixes, shared, weights[order], length) for length in range(2, LONGEST_PIECE + 1)]
    starts, lengths, counts = (np.concatenate(columns) for columns in zip(*found, strict=True))
    best = np.lexsort((lengths, starts, -counts * lengths))[:_MOST_CANDIDATES]
    starts, lengths, counts = starts[best], lengths[best], counts[best]
    matches = np.full((len(order), LONGEST_PIECE), letters + len(best), dtype=np.int32)
    matches[:, 0] = words.letters
    for length in range(2, LONGEST_PIECE + 1):
        groups = np.cumsum(shared < length) - 1
        piece_of = np.full(len(order) + 1, letters + len(best), dtype=np.int32)
        mine = np.flatnonzero(lengths == length)
        piece_of[groups[starts[mine]]] = letters + mine
        matches[order, length - 1] = piece_of[groups]
    return _Pieces(
        np.concatenate([np.zeros(letters, dtype=np.int64), order[starts]]),
        np.concatenate([np.ones(letters, dtype=np.int64), lengths]),
        np.concatenate([np.bincount(words.letters, weights, letters), counts * lengths]),
        matches,
    )


def _sorted_suffixes(words: _Words) -> tuple[Whole, NDArray[np.uint16], Whole]:
    """Every rest of a word in alphabetical order: where it starts, its letters, how many it shares with the one before.

    Letters count from 1 here; 0 stands after the end of a word. Only the first LONGEST_PIECE letters are looked at.
    """
    size = len(words.letters)
    left = np.repeat(np.cumsum(words.lengths), words.lengths) - np.arange(size)
    padded = np.concatenate([words.letters + 1, np.zeros(LONGEST_PIECE, dtype=np.int64)]).astype(np.uint16)
    suffixes = np.lib.stride_tricks.sliding_window_view(padded, LONGEST_PIECE)[:size].copy()
    suffixes[np.arange(LONGEST_PIECE) >= left[:, None]] = 0
    # Four letters of 16 bits make one key of 64.
    keys = suffixes.astype(">u2").view(">u8").astype(np.uint64)  # (characters, LONGEST_PIECE / 4)
    order = np.lexsort(keys.T[::-1])
    suffixes = suffixes[order]
    same = np.logical_and.accumulate(suffixes[1:] == suffixes[:-1], axis=1).sum(axis=1)
    return order, suffixes, np.concatenate([np.zeros(min(size, 1), dtype=np.int64), same])


def _repeated(suffixes: NDArray[np.uint16], shared: Whole, weights: Real, length: int) -> tuple[Whole, Whole, Real]:
    """Substrings of one length that occur twice or more: first suffix that begins with each, length, count.

    One that is always followed by the same letter is left out: the longer one stands for it.
    """
    starts = np.flatnonzero(shared < length)
    counts = np.add.reduceat(weights, starts) if len(starts) else np.zeros(0)
    kept = (suffixes[starts, length - 1] != 0) & (counts >= 2)
    if length < LONGEST_PIECE:
        longer = np.flatnonzero(shared < length + 1)
        members = np.diff(np.append(starts, len(shared)))
        members_of_longer = np.diff(np.append(longer, len(shared)))[np.searchsorted(longer, starts)]
        kept &= (members != members_of_longer) | (suffixes[starts, length] == 0)
    return starts[kept], np.full(np.count_nonzero(kept), length, dtype=np.int64), counts[kept]


def _expected_counts(words: _Words, pieces: _Pieces) -> Real:
    """How often each piece is used, over all ways to cut each word (forward and backward over words of one length)."""
    probabilities = pieces.probabilities()
    expected = np.zeros(len(probabilities))
    for length, counts, matches in _groups(words, pieces):
        cells = probabilities[matches]  # (length, LONGEST_PIECE, words)
        forward = np.zeros((length + 1, len(counts)))
        forward[0] = 1.0
        for end in range(1, length + 1):
            for size in range(1, min(LONGEST_PIECE, end) + 1):
                forward[end] += forward[end - size] * cells[end - size, size - 1]
        backward = np.zeros((length + 1, len(counts)))
        backward[length] = counts / forward[length]
        for start in reversed(range(length)):
            for size in range(1, min(LONGEST_PIECE, length - start) + 1):
                cells[start, size - 1] *= backward[start + size]
                backward[start] += cells[start, size - 1]
            cells[start] *= forward[start]
        expected += np.bincount(matches.ravel(), cells.ravel(), len(expected))
    return expected[:-1]


def _groups(words: _Words, pieces: _Pieces) -> Iterator[tuple[int, Real, NDArray[np.int32]]]:
    """Words of one length: the length, their counts, and their matches, of shape (length, LONGEST_PIECE, words)."""
    offsets = np.concatenate([[0], np.cumsum(words.lengths)])
    for length in np.unique(words.lengths).tolist():
        first, last = np.searchsorted(words.lengths, [length, length + 1]).tolist()
        step = _CELLS_AT_ONCE // (length * LONGEST_PIECE)
        for start in range(first, last, step):
            end = min(start + step, last)
            matches = pieces.matches[offsets[start] : offsets[end]].reshape(end - start, length, LONGEST_PIECE)
            yield length, words.counts[start:end], np.ascontiguousarray(matches.transpose(1, 2, 0))


def _drop_least_missed(pieces: _Pieces, room: int) -> _Pieces:
    """The `room` pieces without which the words would become least likely; of equals, those that came first."""
    if len(pieces) <= room:
        return pieces
    probabilities = pieces.probabilities()
    longer = ~pieces.is_letter
    loss = np.full(len(pieces), np.inf)
    without = _best_without(pieces, probabilities)[longer]
    loss[longer] = pieces.counts[longer] * np.log(probabilities[:-1][longer] / without)
    kept = np.zeros(len(pieces), dtype=np.bool_)
    kept[np.argsort(-np.round(loss, 6), kind="stable")[:room]] = True
    return pieces.keep(kept)


def _best_without(pieces: _Pieces, probabilities: Real) -> Real:
    """The likeliest way to spell each piece by shorter ones."""
    best = np.zeros(len(pieces))
    for length in range(2, LONGEST_PIECE + 1):
        mine = np.flatnonzero(pieces.lengths == length)
        forward = np.zeros((length + 1, len(mine)))
        forward[0] = 1.0
        for end in range(1, length + 1):
            for size in range(1, min(end, length - 1) + 1):
                matches = pieces.matches[pieces.starts[mine] + end - size, size - 1]
                np.maximum(forward[end], forward[end - size] * probabilities[matches], out=forward[end])
        best[mine] = forward[length]
    return best
