"""The guard: passages that contain a dev or test text never reach training.

A passage is dropped if it shares a run of 13 words with such a text; for a text of fewer than 13 words, if the text
stands in the passage as a whole sentence (or is the whole passage).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from endtask.retrieve.words import Vocabulary, WordStream, words_of

RUN = 13
_BASE = np.uint64(0x9E3779B97F4A7C15)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def guarded_positions(
    guarded_texts: Iterable[str],
    passages: WordStream,
    vocabulary: Vocabulary,
    texts_at: Callable[[set[int]], dict[int, str]],
) -> set[int]:
    """Positions of the passages to drop.

    Runs of word numbers are hashed over the whole corpus at once. A hit of a full run is confirmed word by word; a hit
    of a short text is confirmed against the passage's sentences, whose text `texts_at` fetches.
    """
    long_runs: set[tuple[int, ...]] = set()
    short_texts: dict[int, set[tuple[int, ...]]] = {}
    for text in guarded_texts:
        words = words_of(text)
        ids = tuple(int(number) for number in vocabulary.known(text))
        if len(ids) != len(words):
            # A word that no passage holds: the whole text cannot occur, but runs beside that word can.
            long_runs.update(_runs_beside_unknown_words(words, vocabulary))
        elif len(ids) >= RUN:
            long_runs.update(ids[start : start + RUN] for start in range(len(ids) - RUN + 1))
        elif ids:
            short_texts.setdefault(len(ids), set()).add(ids)
    dropped = {position for position, run in _occurrences(long_runs, RUN, passages) if run in long_runs}
    for length, wanted in short_texts.items():
        candidates = {position for position, run in _occurrences(wanted, length, passages) if run in wanted}
        texts = texts_at(candidates - dropped)
        dropped |= {position for position, text in texts.items() if _has_sentence(text, wanted, vocabulary)}
    return dropped


def _runs_beside_unknown_words(words: list[str], vocabulary: Vocabulary) -> Iterable[tuple[int, ...]]:
    for start in range(len(words) - RUN + 1):
        ids = vocabulary.known(" ".join(words[start : start + RUN]))
        if len(ids) == RUN:
            yield tuple(int(number) for number in ids)


def _occurrences(
    wanted: set[tuple[int, ...]], length: int, passages: WordStream
) -> Iterable[tuple[int, tuple[int, ...]]]:
    """(passage, run of words) wherever a run's hash is among the wanted ones."""
    if not wanted or len(passages.ids) < length:
        return
    hashes = np.sort(_run_hashes(np.asarray(sorted(wanted), dtype=np.uint64).reshape(-1), length)[::length])
    found = _run_hashes(passages.ids, length)  # (words - length + 1,)
    places = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
    starts = np.flatnonzero(hashes[places] == found)
    positions = np.searchsorted(passages.offsets, starts, side="right") - 1
    inside = starts + length <= passages.offsets[positions + 1]
    for start, position in zip(starts[inside], positions[inside], strict=True):
        yield int(position), tuple(int(number) for number in passages.ids[start : start + length])


def _run_hashes(ids: NDArray[np.uint32] | NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """Polynomial hashes of all runs of `length` words: sum of id * base^k, modulo 2^64."""
    count = len(ids) - length + 1
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(length):
        hashes *= _BASE
        hashes += ids[offset : offset + count].astype(np.uint64) + np.uint64(1)
    return hashes


def _has_sentence(text: str, wanted: set[tuple[int, ...]], vocabulary: Vocabulary) -> bool:
    parts = [text, *_SENTENCE_END.split(text)]
    return any(tuple(int(number) for number in vocabulary.known(part)) in wanted for part in parts)
