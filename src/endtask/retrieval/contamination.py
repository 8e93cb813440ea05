"""The contamination filter drops passages that contain a dev or test text, before training.

A passage is dropped if it shares 13 consecutive words with such a text. A text of fewer than 13 words must occur in the
passage as one or several complete sentences (or be the complete passage).

The kernel that reads the corpus sees only hashes of words: `may_be_contaminated` flags every passage that may contain
an evaluation text and misses none. `ContaminationFilter.confirm` then compares the words of the flagged passages.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.compiled import compiled, njit
from endtask.retrieval.words import HASH_FACTOR, HASH_START, word_hash, words_of

__all__ = ["RUN", "ContaminationFilter", "ContaminationIndex", "may_be_contaminated", "spellings"]

_SENTENCE_END = re.compile(r"""(?<=[.!?…؟۔।॥])["”’»')\]]*\s+|(?<=[。！？．｡])|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+""")
_ESCAPED_BRACKET = re.compile(r"-[lr][rsc]b-", re.IGNORECASE)

_word_hash = lru_cache(maxsize=1 << 16)(word_hash)

RUN = 13
PROBE = 10
"""Every run of 13 words contains a run of 10 that starts at a multiple of 4, so only these are looked up first."""
_STEP = RUN - PROBE + 1
_BITS_PER_KEY = 16

_START, _FACTOR = np.uint64(HASH_START), np.uint64(HASH_FACTOR)
_BASE, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_ONE, _SIX, _HALF, _LOW_SIX, _LOW_HALF = (np.uint64(value) for value in (1, 6, 32, 63, 0xFFFFFFFF))
_BLANK, _LINE_END = 32, 10  # bytes that no word contains
_LEAD_BITS, _CONTINUES = 0xC0, 0x80  # of a byte that continues a character in UTF-8

Hashes = NDArray[np.uint64]


class ContaminationFilter:
    """The evaluation texts, indexed for the kernel and for exact comparison.

    >>> contamination = ContaminationFilter.of(["Great film.", "One of the longer texts of a test set."])
    >>> contamination.confirm("I saw it. Great film! I left."), contamination.confirm("It was a great film.")
    (True, False)
    """

    def __init__(self, table: ContaminationIndex, long_texts: NDArray[np.uint8], shorts: frozenset[str]) -> None:
        self.table = table
        self._long_texts = long_texts  # each word is followed by a blank or, at the end of a text, a line end
        self._shorts = shorts  # words separated by blanks

    @classmethod
    def of(cls, texts: Iterable[str]) -> ContaminationFilter:
        """Build the filter of these texts, in all of their `spellings`."""
        forms = {form for text in texts for form in spellings(text)} - {""}
        shorts = frozenset(form for form in forms if form.count(" ") < RUN - 1)
        long_texts = join_texts(sorted(forms - shorts))
        return cls(make_table(long_texts, shorts), long_texts, shorts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the filter as plain arrays, to be saved for other processes."""
        short_texts = join_texts(sorted(self._shorts))
        return {**self.table._asdict(), "long_texts": self._long_texts, "short_texts": short_texts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ContaminationFilter:
        """Rebuild a filter from its `arrays`."""
        table = ContaminationIndex(*(arrays[name] for name in ContaminationIndex._fields))
        return cls(table, arrays["long_texts"], frozenset(arrays["short_texts"].tobytes().decode().splitlines()))

    def confirm(self, text: str) -> bool:
        """Return whether a passage contains an evaluation text."""
        sentences = [words for part in _SENTENCE_END.split(text) if (words := words_of(part))]
        return self._has_short_text(sentences) or self._has_run(list(chain.from_iterable(sentences)))

    def _has_short_text(self, sentences: list[list[str]]) -> bool:
        """Return whether consecutive sentences equal a short text, which may have several sentences or inner dots."""
        for first in range(len(sentences)):
            words: list[str] = []
            for sentence in sentences[first : first + RUN]:
                words += sentence
                if len(words) >= RUN:
                    break
                if " ".join(words) in self._shorts:
                    return True
        return False

    def _has_run(self, words: list[str]) -> bool:
        """Return whether 13 consecutive words occur in one of the long texts."""
        hashes = np.asarray([_word_hash(word) for word in words], dtype=np.uint64)
        return any(
            self._is_at(start, " ".join(words[index : index + RUN])) for index, start in known_runs(self.table, hashes)
        )

    def _is_at(self, start: int, run: str) -> bool:
        words = run.encode()
        return self._long_texts[start : start + len(words) + 1].tobytes() in (words + b" ", words + b"\n")


def spellings(text: str) -> Iterator[str]:
    """Yield the words of a text, joined by blanks, in each form that a copy in a corpus may have.

    Many task files come from a tokenizer that writes a bracket as `-LRB-` and "don't" as "do n't", or contain HTML
    entities. A corpus may use either form, and one extra word breaks every run around it. Only the evaluation texts are
    respelled, so that reading the corpus takes no longer.

    >>> list(spellings("It does n't (p &lt; 5)"))
    ['it does n t p lt 5', 'it doesn t p lt 5', 'it does n t p 5', 'it doesn t p 5']
    """
    plain = html.unescape(text)
    plain = _ESCAPED_BRACKET.sub(" ", plain if plain.isascii() else unicodedata.normalize("NFKC", plain))
    for form in dict.fromkeys((text, plain)):
        words = " ".join(words_of(form))
        contracted = f" {words} ".replace(" n t ", "n t ").replace(" can not ", " cannot ")
        parted = contracted.replace("n t ", " n t ").replace(" cannot ", " can not ")
        yield from dict.fromkeys((words, contracted.strip(), parted.strip()))


class ContaminationIndex(NamedTuple):
    """Hashes of the evaluation texts."""

    filter: Hashes
    """A bit set with each run of `PROBE` words in the long texts and each short text. Most lookups end here."""
    runs: Hashes
    """Each run of `RUN` words in the long texts: the upper half of its key, then its byte offset in them; sorted."""
    shorts: Hashes
    """Keys of the texts of fewer than `RUN` words, sorted."""
    short_lengths: NDArray[np.uint8]
    """Entry n is 1 if a short text has n words; the last entry is that of the longest."""


def join_texts(texts: Iterable[str]) -> NDArray[np.uint8]:
    """Return the texts as bytes, a line end after each."""
    joined = "".join(f"{text}\n" for text in texts).encode()
    return np.frombuffer(bytearray(joined), dtype=np.uint8)  # an array of bytes would be read-only


def make_table(long_texts: NDArray[np.uint8], shorts: Iterable[str]) -> ContaminationIndex:
    """Build the index of joined long texts and of short texts, whose words are separated by one blank."""
    short_keys, lengths = _short_keys(shorts)
    most_keys = int(np.count_nonzero(long_texts <= _BLANK)) + len(short_keys)
    bits = np.zeros(1 << (_BITS_PER_KEY * most_keys // 64).bit_length(), dtype=np.uint64)
    runs = _long_runs(long_texts, bits)
    indices = short_keys & np.uint64(bits.size * 64 - 1)
    np.bitwise_or.at(bits, indices >> _SIX, _ONE << (indices & _LOW_SIX))
    return ContaminationIndex(bits, runs, short_keys, lengths)


def known_runs(table: ContaminationIndex, hashes: Hashes) -> Iterator[tuple[int, int]]:
    """Yield (index among a passage's words, byte offset in the long texts) of each run that may be in the index."""
    count = max(0, len(hashes) - RUN + 1)
    keys = _keys(hashes[offset : offset + count] for offset in range(RUN))
    first = np.searchsorted(table.runs, keys & ~_LOW_HALF, side="left")
    last = np.searchsorted(table.runs, keys | _LOW_HALF, side="right")
    for index in np.flatnonzero(first < last).tolist():
        yield from ((index, int(entry & _LOW_HALF)) for entry in table.runs[first[index] : last[index]])


def _long_runs(texts: NDArray[np.uint8], bits: Hashes) -> Hashes:
    """Return `ContaminationIndex.runs` and set the bits of the long texts."""
    if len(texts) > int(_LOW_HALF):
        raise ValueError(f"{len(texts):,} bytes of evaluation texts; the limit is {int(_LOW_HALF):,}")
    longest = int(np.diff(np.flatnonzero(texts == _LINE_END), prepend=-1).max(initial=1))
    runs = np.empty(int(np.count_nonzero(texts <= _BLANK)), dtype=np.uint64)
    count = _enter_runs(texts, np.empty(longest, np.uint64), np.empty(longest, np.uint32), bits, runs)
    runs = np.sort(runs[:count])
    return runs[: _drop_repeats(runs, texts)].copy()


def _short_keys(texts: Iterable[str]) -> tuple[Hashes, NDArray[np.uint8]]:
    """Return `ContaminationIndex.shorts` and `ContaminationIndex.short_lengths`."""
    by_length: dict[int, list[list[int]]] = {}
    for text in texts:
        hashes = [word_hash(word) for word in text.split(" ")]
        by_length.setdefault(len(hashes), []).append(hashes)
    lengths = np.zeros(max(by_length, default=-1) + 1, dtype=np.uint8)
    lengths[list(by_length)] = 1
    keys = [_keys(np.asarray(rows, dtype=np.uint64).T) for rows in by_length.values()]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *keys])), lengths


def _keys(columns: Iterable[Hashes]) -> Hashes:
    """Return `run_key` of many runs at once, from the hashes of their first words, second words and so on."""
    values: Any = np.uint64(0)
    for column in columns:
        values = values * _BASE + column
    values = (values ^ (values >> _HALF)) * _MIX
    keys: Hashes = values ^ (values >> _HALF)
    return keys


@njit
def run_key(hashes, start, length):  # type: ignore[no-untyped-def]
    """Return a key of `length` words from `start` on."""
    value = np.uint64(0)
    for index in range(start, start + length):
        value = value * _BASE + hashes[index]
    value = (value ^ (value >> _HALF)) * _MIX
    return value ^ (value >> _HALF)


@njit
def _is_set(bits, key):  # type: ignore[no-untyped-def]
    bit = key & np.uint64(bits.size * 64 - 1)
    return (bits[bit >> _SIX] >> (bit & _LOW_SIX)) & _ONE != 0


@njit
def _holds(entries, key):  # type: ignore[no-untyped-def]
    """Return whether one of the sorted entries has the upper half of the key."""
    first, last = 0, entries.size
    while first < last:
        middle = (first + last) >> 1
        if entries[middle] >> _HALF < key >> _HALF:
            first = middle + 1
        else:
            last = middle
    return first < entries.size and entries[first] >> _HALF == key >> _HALF


@njit
def may_be_contaminated(hashes, breaks, count, bits, runs, shorts, short_lengths):  # type: ignore[no-untyped-def]
    """Return whether a passage of `count` words may contain an evaluation text; False only where `confirm` is False.

    `breaks` is 1 at the first word and at words before which a sentence may have ended; the last four arguments are a
    `ContaminationIndex`.
    """
    if runs.size > 0 and count >= RUN:
        for start in range(0, count - PROBE + 1, _STEP):
            if _is_set(bits, run_key(hashes, start, PROBE)) and _run_around(start, hashes, count, bits, runs):
                return True
    if shorts.size > 0:
        sentence = 0
        for end in range(1, count + 1):
            if end == count or breaks[end]:
                near = end - sentence < short_lengths.size
                if near and _short_text_to(end, hashes, breaks, bits, shorts, short_lengths):
                    return True
                sentence = end
    return False


@njit
def _run_around(start, hashes, count, bits, runs):  # type: ignore[no-untyped-def]
    """Return whether an indexed run may contain the `PROBE` words at `start`; the bits of all its probes are set."""
    first = start
    while first > max(0, start - _STEP + 1) and _is_set(bits, run_key(hashes, first - 1, PROBE)):
        first -= 1
    last = start
    while last < min(count - PROBE, start + _STEP - 1) and _is_set(bits, run_key(hashes, last + 1, PROBE)):
        last += 1
    while first + _STEP - 1 <= last and not _holds(runs, run_key(hashes, first, RUN)):
        first += 1
    return first + _STEP - 1 <= last


@njit
def _short_text_to(end, hashes, breaks, bits, shorts, short_lengths):  # type: ignore[no-untyped-def]
    """Return whether the words from the start of some sentence up to `end` may be a short text."""
    for length in range(1, min(short_lengths.size, end + 1)):
        start = end - length
        if breaks[start] and short_lengths[length]:
            key = run_key(hashes, start, length)
            if _is_set(bits, key) and _holds(shorts, key):
                return True
    return False


@compiled("int64(uint8[::1], uint64[::1], uint32[::1], uint64[::1], uint64[::1])")
def _enter_runs(texts, hashes, starts, bits, runs):  # type: ignore[no-untyped-def]
    """Fill `bits` and `runs` from joined texts; return the number of runs.

    `hashes` and `starts` are scratch arrays for the words of one text.
    """
    entered = 0
    words = 0
    starts[0] = 0
    value = _START
    point = np.uint64(0)
    for index in range(texts.size):
        byte = texts[index]
        if byte > _BLANK:
            if byte & _LEAD_BITS == _CONTINUES:
                point = point << _SIX | np.uint64(byte & 0x3F)
            else:
                point = np.uint64(byte if byte < 0x80 else byte & (0x1F if byte < 0xE0 else 0x0F))
            if texts[index + 1] & _LEAD_BITS != _CONTINUES:
                value = (value ^ point) * _FACTOR
            continue
        hashes[words] = value
        value = _START
        words += 1
        if byte == _LINE_END:
            entered = _enter_text(hashes, starts, words, bits, runs, entered)
            words = 0
        starts[words] = index + 1
    return entered


@njit
def _enter_text(hashes, starts, words, bits, runs, entered):  # type: ignore[no-untyped-def]
    for first in range(words - PROBE + 1):
        bit = run_key(hashes, first, PROBE) & np.uint64(bits.size * 64 - 1)
        bits[bit >> _SIX] |= _ONE << (bit & _LOW_SIX)
    for first in range(words - RUN + 1):
        runs[entered] = run_key(hashes, first, RUN) & ~_LOW_HALF | np.uint64(starts[first])
        entered += 1
    return entered


@compiled("int64(uint64[::1], uint8[::1])")
def _drop_repeats(runs, texts):  # type: ignore[no-untyped-def]
    """Remove from the sorted runs those with the words of the run before; return the number of runs left."""
    count = min(1, runs.size)
    for index in range(1, runs.size):
        last, run = runs[count - 1], runs[index]
        if last >> _HALF != run >> _HALF or not _same_run(texts, last & _LOW_HALF, run & _LOW_HALF):
            runs[count] = run
            count += 1
    return count


@njit
def _same_run(texts, first, second):  # type: ignore[no-untyped-def]
    """Return whether the same `RUN` words start at two offsets; the last word may end a text in one of them."""
    words = 0
    while texts[first] == texts[second] or max(texts[first], texts[second]) <= _BLANK:
        words += texts[first] <= _BLANK
        if words == RUN:
            return True
        first += _ONE
        second += _ONE
    return False
