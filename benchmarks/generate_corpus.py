"""Generate a corpus of any size from a seed: made-up words with the frequencies of real text.

Words follow the law of Zipf and Mandelbrot; frequent words are short. Every text has a topic with words of its own, so
that queries (short texts of the same topics) match some passages better than others. The same seed gives the same
bytes, whatever the number of worker processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.io.atomic import write_json, write_text
from endtask.io.compression import atomic_compressed_file

_SYLLABLES = 128
VOCABULARY = _SYLLABLES + _SYLLABLES**2 + _SYLLABLES**3  # all words of one, two and three syllables: 2.1 million
TOPICS = 5_000
QUERIES, RECIPE = "queries.jsonl", "recipe.json"

_TOPIC_SHARE = 0.25  # of the words of a text
_TOPIC_WORDS = 400
_COMMON = 300  # words that belong to no topic
_SLOTS = 1 << 16  # resolution of the distribution of words
_ROW = 16  # bytes for a word, a punctuation mark and a blank; zero bytes are removed
_MARK, _BLANK = _ROW - 2, _ROW - 1
_BLOCK = 1_024  # texts generated at a time
_CHANCES, _STOPS, _COMMAS = 400, 22, 44  # of 400 words 22 precede a full stop, 22 a comma and 1 a dash (not ASCII)
_DASH = np.frombuffer("–".encode(), dtype=np.uint8)

Words = NDArray[np.int64]


@dataclass(frozen=True)
class Lengths:
    """Numbers of words per text: log-normal around the mean."""

    mean: float
    spread: float
    least: int
    most: int

    def draw(self, random: np.random.Generator, count: int) -> Words:
        """Draw the lengths of `count` texts."""
        centre = np.log(self.mean) - self.spread**2 / 2
        drawn = np.rint(random.lognormal(centre, self.spread, count))
        return np.clip(drawn, self.least, self.most).astype(np.int64)


TEXT_LENGTHS = Lengths(mean=220, spread=0.55, least=10, most=2_000)
QUERY_LENGTHS = Lengths(mean=30, spread=0.4, least=5, most=100)


def generate(
    folder: Path, *, text_bytes: int, seed: int, shards: int = 20, queries: int = 0, workers: int | None = None
) -> list[Path]:
    """Write `shards` files of texts with `text_bytes` in all (each exceeds its share by less than a text), and queries.

    Existing files of the same corpus stay; raise `InputError` if the folder holds another corpus.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _check_recipe(folder / RECIPE, {"bytes": text_bytes, "seed": seed, "shards": shards, "queries": queries})
    if queries and not (folder / QUERIES).exists():
        _write_queries(folder / QUERIES, seed, queries)
    paths = [folder / f"generated-{number:03d}.jsonl.zst" for number in range(shards)]
    sizes = [text_bytes // shards + (number < text_bytes % shards) for number in range(shards)]
    jobs = [
        (path, number, size) for number, (path, size) in enumerate(zip(paths, sizes, strict=True)) if not path.exists()
    ]
    if jobs:
        with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
            list(pool.map(partial(_write_shard, seed), *zip(*jobs, strict=True)))
    return paths


def texts(random: np.random.Generator, lengths: Lengths, count: int) -> list[bytes]:
    """Draw `count` texts: sentences of made-up words in UTF-8, without characters that JSON would escape.

    >>> texts(np.random.default_rng(0), Lengths(mean=6, spread=0.1, least=5, most=7), 1)
    [b'Rel, ta. Ta fonrut relsa gunto.']
    """
    sizes = lengths.draw(random, count)
    last = np.cumsum(sizes) - 1
    words = _draw_words(random, sizes)
    rows = word_table().view(f"V{_ROW}")[words, 0].view(np.uint8).reshape(-1, _ROW)  # as whole rows, five times faster
    chance = random.integers(_CHANCES, size=len(words), dtype=np.uint16)
    chance[last] = 0
    stops = np.flatnonzero(chance < _STOPS)
    rows[stops, _MARK] = ord(".")
    rows[np.flatnonzero((chance >= _STOPS) & (chance < _COMMAS)), _MARK] = ord(",")
    rows[np.flatnonzero(chance == _COMMAS), _MARK - 2 : _BLANK] = _DASH
    rows[np.append(0, stops[:-1] + 1), 0] -= 32  # capitals: every word starts with an ASCII letter
    rows[last, _BLANK] = ord("\n")
    content: bytes = rows.tobytes()
    return content.translate(None, b"\0").split(b"\n")[:-1]


@cache
def word_table() -> NDArray[np.uint8]:
    """Return a row of bytes for each word, the most frequent first: syllables, space for a punctuation mark, a blank."""
    syllables = _syllables()
    table = np.zeros((VOCABULARY, _ROW), dtype=np.uint8)
    table[:, _BLANK] = ord(" ")
    numbers = np.arange(VOCABULARY)
    for digit in range(3):  # the syllables are the digits of the word's number, in a numeration without zero
        used = numbers >= 0
        table[used, 4 * digit : 4 * digit + 4] = syllables[numbers[used] % _SYLLABLES]
        numbers = numbers // _SYLLABLES - 1
    return table


def _syllables() -> NDArray[np.uint8]:
    """Return syllables (consonant, one or two vowels, perhaps a consonant) that make all words different.

    Short syllables come first, so that frequent words are short.
    """
    random = np.random.default_rng(0)
    short = [onset + vowel for onset in "tsh" for vowel in "ao"]
    closed = [onset + vowel + coda for onset in "tshwbdfmnlrcgpkv" for vowel in "aeiou" for coda in "nrstl"]
    long = [onset + vowels + coda for onset in "tsbdfmnlrcgp" for vowels in ("ea", "ou", "ai", "io") for coda in "ndk"]
    chosen = [*short, *random.choice(closed, 80, False).tolist(), *random.choice(long, 42, False).tolist()]
    encoded = [syllable.encode().ljust(4, b"\0") for syllable in chosen]
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).reshape(_SYLLABLES, 4)


def _draw_words(random: np.random.Generator, sizes: Words) -> Words:
    """Return the words of all texts end to end, as numbers; some words of each text belong to its topic."""
    total = int(sizes.sum())
    words = _word_at(random.random(total))
    topical = np.flatnonzero(random.random(total) < _TOPIC_SHARE)
    topic = np.repeat(random.integers(TOPICS, size=len(sizes)), sizes)[topical]
    index = (_TOPIC_WORDS + 1) ** random.random(len(topical)) - 1  # mostly the first few words of the topic
    words[topical] = _topic_word(topic, index.astype(np.int64))
    return words


def _topic_word(topic: Words, index: Words) -> Words:
    """Return a word of a topic by its index: any but the common words, in proportion to their frequencies."""
    mixed = (topic * _TOPIC_WORDS + index) * 0x9E3779B1 % (1 << 32)
    common = cumulated_shares()[_COMMON - 1]
    return _word_at(common + (1 - common) * mixed / (1 << 32))


def _word_at(share: NDArray[np.float64]) -> Words:
    """Return the word at which the cumulated shares of all words, the most frequent first, reach `share`."""
    steps = _quantiles()
    position = share * _SLOTS
    slot = position.astype(np.int64)
    low = steps[slot]
    return (low + (position - slot) * (steps[slot + 1] - low)).astype(np.int64)


@cache
def _quantiles() -> NDArray[np.float64]:
    edges = np.concatenate([[0.0], cumulated_shares()])
    steps = np.interp(np.linspace(0, 1, _SLOTS + 1), edges, np.arange(VOCABULARY + 1))
    return np.minimum(steps, VOCABULARY - 1e-6)


@cache
def cumulated_shares() -> NDArray[np.float64]:
    """Return for each n the share of the n + 1 most frequent words among all words of a text.

    Zipf and Mandelbrot's law with the bend that large corpora show at some thousand words: before it a word's frequency
    falls with its rank, beyond it with a power of 1.8 of the rank.
    """
    rank = np.arange(1, VOCABULARY + 1)
    sums = np.cumsum(1 / (rank + 0.6) / (1 + rank / 6_000) ** 0.8)
    return np.asarray(sums / sums[-1])


def _check_recipe(path: Path, recipe: dict[str, int]) -> None:
    if not path.exists():
        write_json(path, recipe)
    elif json.loads(path.read_text(encoding="utf-8")) != recipe:
        raise InputError("the folder holds another generated corpus", path=path, hint="name another folder")


def _write_shard(seed: int, path: Path, number: int, text_bytes: int) -> None:
    random = np.random.default_rng([seed, number])
    with atomic_compressed_file(path) as stream:
        for block in _blocks(random, number, text_bytes):
            stream.write(block)


def _blocks(random: np.random.Generator, shard: int, text_bytes: int) -> Iterator[bytes]:
    """Yield JSON Lines, a block of texts at a time, until there is enough text."""
    count = 0
    while text_bytes > 0:
        lines = []
        for text in texts(random, TEXT_LENGTHS, _BLOCK):
            if text_bytes <= 0:
                break
            lines.append(b'{"id": "%03d-%08d", "text": "%b"}\n' % (shard, count, text))
            count += 1
            text_bytes -= len(text)
        yield b"".join(lines)


def _write_queries(path: Path, seed: int, count: int) -> None:
    random = np.random.default_rng([seed, 1 << 20])  # no shard has such a number, so the stream is independent
    drawn = texts(random, QUERY_LENGTHS, count)
    write_text(path, "".join(f'{{"text": "{text.decode()}"}}\n' for text in drawn))
