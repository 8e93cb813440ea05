"""The guard: passages that contain a dev or test text never reach training.

A passage is dropped if it shares a run of 13 words with such a text; for a text of fewer than 13 words, if the text
stands in the passage as one or several whole sentences (or is the whole passage).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from endtask.retrieve.words import Vocabulary, WordStream

RUN = 13
Run = tuple[int, ...]
Runs = dict[int, set[Run]]

_BASE = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 1 << 20  # words hashed at a time
_TOP_BITS = np.uint64(64 - 20)
_SENTENCE_END = re.compile(r"""(?<=[.!?…])["”’»')\]]*\s+|(?<=[。！？])|\n+""")


def guarded_positions(
    guarded_texts: Iterable[str],
    passages: WordStream,
    vocabulary: Vocabulary,
    texts_at: Callable[[set[int]], Iterable[tuple[int, str]]],
) -> set[int]:
    """Positions of the passages to drop.

    Runs of word numbers are hashed over the whole corpus at once. A hit of a full run is confirmed word by word; a hit
    of a short text is confirmed against the passage's sentences, whose text `texts_at` fetches.
    """
    wanted = _wanted_runs(guarded_texts, vocabulary)
    dropped: set[int] = set()
    candidates: set[int] = set()
    for length, starts, positions in _hits(wanted, passages):
        if length < RUN:
            candidates.update(positions.tolist())
            continue
        for start, position in zip(starts.tolist(), positions.tolist(), strict=True):
            if tuple(passages.ids[start : start + RUN].tolist()) in wanted[RUN]:
                dropped.add(position)
    for position, text in texts_at(candidates - dropped):
        if _has_sentences(text, wanted, vocabulary):
            dropped.add(position)
    return dropped


def _wanted_runs(texts: Iterable[str], vocabulary: Vocabulary) -> Runs:
    """All runs of 13 words, and the short texts whole, by length; runs with a word that no passage holds cannot occur.

    >>> words = Vocabulary()
    >>> _ = words.add("a b c")
    >>> _wanted_runs(["c a", "b x"], words)
    {2: {(2, 0)}}
    """
    wanted: Runs = {}
    for text in texts:
        numbers = tuple(vocabulary.numbers(text).tolist())
        length = min(len(numbers), RUN)
        for start in range(len(numbers) - length + 1):
            run = numbers[start : start + length]
            if run and -1 not in run:
                wanted.setdefault(length, set()).add(run)
    return wanted


def _hits(wanted: Runs, passages: WordStream) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """(length, starts in the stream, their passages) of the runs whose hash is among the wanted ones.

    The hash of a run is the sum of (number + 1) * base^k modulo 2^64, so each length's hashes come from the last's.
    """
    tables = {length: _HashTable(runs) for length, runs in wanted.items()}
    for begin in range(0, len(passages.ids), _CHUNK):
        ids = passages.ids[begin : begin + _CHUNK + RUN - 1].astype(np.uint64) + np.uint64(1)
        hashes = np.zeros(min(len(ids), _CHUNK), dtype=np.uint64)
        for length in range(1, max(tables, default=0) + 1):
            count = min(_CHUNK, max(0, len(ids) - length + 1))
            hashes = hashes[:count] * _BASE + ids[length - 1 : length - 1 + count]
            if length in tables:
                starts = begin + tables[length].places(hashes)
                positions = np.searchsorted(passages.offsets, starts, side="right") - 1
                inside = starts + length <= passages.offsets[positions + 1]
                yield length, starts[inside], positions[inside]


class _HashTable:
    """The hashes of the runs of one length, with a coarse table before them that turns most others away."""

    def __init__(self, runs: set[Run]) -> None:
        hashes = np.zeros(len(runs), dtype=np.uint64)
        for column in np.asarray(sorted(runs), dtype=np.uint64).T:
            hashes = hashes * _BASE + column + np.uint64(1)
        self._hashes = np.sort(hashes)
        self._coarse = np.zeros(1 << (64 - int(_TOP_BITS)), dtype=bool)
        self._coarse[self._hashes >> _TOP_BITS] = True

    def places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Where `hashes` holds one of the table's."""
        places = np.flatnonzero(self._coarse[hashes >> _TOP_BITS])
        nearest = np.minimum(np.searchsorted(self._hashes, hashes[places]), len(self._hashes) - 1)
        found: NDArray[np.int64] = places[self._hashes[nearest] == hashes[places]]
        return found


def _has_sentences(text: str, wanted: Runs, vocabulary: Vocabulary) -> bool:
    """Whether consecutive whole sentences make up a short text; a test text may hold two, or a dot inside one."""
    sentences = [tuple(vocabulary.known(part).tolist()) for part in _SENTENCE_END.split(text)]
    sentences = [sentence for sentence in sentences if sentence]
    for first in range(len(sentences)):
        words: Run = ()
        for sentence in sentences[first : first + RUN]:
            words += sentence
            if len(words) >= RUN:
                break
            if words in wanted.get(len(words), ()):
                return True
    return False
