"""Make the task CT (concept tagging): which words start and end a concept? Test shares no content word with train."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from endtask.errors import InputError
from endtask.evaluation.metrics.spans import spans_of
from endtask.io.tables import Row

Splits = dict[str, list[Row]]
STOP_WORDS = frozenset(Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8").split())
"""Another list would change the tasks."""
_WORD = re.compile(r"[^\W_]+")


def boundaries(tags: Sequence[str]) -> list[str]:
    """Convert BIO tags of any types into four classes; a word inside a concept is neither its start nor its end.

    >>> boundaries(["B-city", "O", "B-artist", "I-artist", "I-artist"])
    ['both', 'none', 'start', 'none', 'end']
    """
    classes = ["none"] * len(tags)
    for _, start, end in spans_of(tags, "bio"):
        classes[start], classes[end - 1] = ("both", "both") if end - start == 1 else ("start", "end")
    return classes


def content_words(tokens: Iterable[str]) -> set[str]:
    """Return the words that train and test must not share: all but stop words, punctuation and single letters.

    >>> sorted(content_words(["What", "'s", "opinion-based", "in", "7"]))
    ['7', 'based', 'opinion']
    """
    lowered = (token.lower() for token in tokens)
    parts = (part for token in lowered if token not in STOP_WORDS for part in _WORD.findall(token))
    return {part for part in parts if part not in STOP_WORDS and (len(part) > 1 or part.isdigit())}


def unique_rows(sources: Mapping[str, Iterable[Row]]) -> list[Row]:
    """Return each text once, with the ends of concepts as tags and its source; skip texts without content words."""
    rows: dict[str, Row] = {}
    for source, source_rows in sources.items():
        for row in source_rows:
            text = " ".join(row["tokens"]).lower()
            if text not in rows and content_words(row["tokens"]):
                rows[text] = {"tokens": row["tokens"], "tags": boundaries(row["tags"]), "source": source}
    return list(rows.values())


@dataclass
class Division:
    """The rows that train may use (`available`) while test takes more and more words (`test_words`)."""

    rows: Sequence[Row]
    available: np.ndarray = field(init=False)
    test_words: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.available = np.ones(len(self.rows), dtype=bool)
        self.words = [sorted(content_words(row["tokens"])) for row in self.rows]
        names, self.source_of = np.unique([row["source"] for row in self.rows], return_inverse=True)
        self.sources = [str(name) for name in names]
        rows_with: dict[str, list[int]] = {}
        for index, words in enumerate(self.words):
            for word in words:
                rows_with.setdefault(word, []).append(index)
        self._rows_with = {word: np.array(indices) for word, indices in rows_with.items()}

    def lost(self, index: int) -> np.ndarray:
        """Return the rows that train loses if test takes this row, itself among them."""
        sharing = [self._rows_with[word] for word in self.words[index] if word not in self.test_words]
        indices: np.ndarray = np.unique(np.concatenate([np.array([index]), *sharing]))
        return np.array(indices[self.available[indices]])

    def cost(self, index: int) -> float:
        """Return the sum over sources of the share of available rows that train loses, so that no source runs out."""
        available = np.bincount(self.source_of[self.available], minlength=len(self.sources))
        lost = np.bincount(self.source_of[self.lost(index)], minlength=len(self.sources))
        return float((lost / np.maximum(available, 1)).sum())

    def take_for_test(self, index: int) -> None:
        """Move a row to test."""
        self.available[self.lost(index)] = False
        self.test_words.update(self.words[index])


def divide(rows: Sequence[Row], *, test: int, dev: int, train: int, draws: int = 50, seed: int = 0) -> Splits:
    """Return `test` rows of each source, and up to `train` and `dev` rows that share no content word with them.

    Sources take their test rows in turn: of `draws` random rows the one that costs train least. The best of all rows
    would cost even less, but such rows are untypical: they have few words, and rare ones.
    """
    division, random = Division(rows), np.random.default_rng(seed)
    test_indices: list[int] = []
    for number in range(test * len(division.sources)):
        source = number % len(division.sources)
        free = np.setdiff1d(np.flatnonzero(division.source_of == source), test_indices)
        if not len(free):
            raise InputError(f"{division.sources[source]} has fewer than {test} rows for test")
        drawn = random.choice(free, min(draws, len(free)), replace=False)
        best = min(drawn.tolist(), key=division.cost)
        division.take_for_test(best)
        test_indices.append(best)
    return {**_train_and_dev(division, dev, train, random), "test": [rows[index] for index in test_indices]}


def _train_and_dev(division: Division, dev: int, train: int, random: np.random.Generator) -> Splits:
    """Return equal parts of every source; if a source has too few rows, dev and train share them in proportion."""
    splits: Splits = {"train": [], "dev": []}
    for number in range(len(division.sources)):
        available = random.permutation(np.flatnonzero(division.available & (division.source_of == number)))
        size = min(dev, len(available) * dev // (dev + train))
        splits["dev"] += [division.rows[index] for index in available[:size]]
        splits["train"] += [division.rows[index] for index in available[size : size + train]]
    return splits


def shared_words(splits: Splits) -> set[str]:
    """Return the content words of test that train or dev contain; there should be none."""
    words = {name: {word for row in rows for word in content_words(row["tokens"])} for name, rows in splits.items()}
    return words["test"] & (words["train"] | words["dev"])
