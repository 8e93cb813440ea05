"""CT: which words start and end a concept, from queries and sentences whose train and test share no content word."""

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
"""The list that the tasks were made with; another list would make other tasks."""
_WORD = re.compile(r"[^\W_]+")


def boundaries(tags: Sequence[str]) -> list[str]:
    """BIO tags of any types as four classes; a word inside a concept is neither its start nor its end.

    >>> boundaries(["B-city", "O", "B-artist", "I-artist", "I-artist"])
    ['both', 'none', 'start', 'none', 'end']
    """
    classes = ["none"] * len(tags)
    for _, start, end in spans_of(tags, "bio"):
        classes[start], classes[end - 1] = ("both", "both") if end - start == 1 else ("start", "end")
    return classes


def content_words(tokens: Iterable[str]) -> set[str]:
    """What train and test may not share: everything but stop words, signs and single letters.

    >>> sorted(content_words(["What", "'s", "opinion-based", "in", "7"]))
    ['7', 'based', 'opinion']
    """
    lowered = (token.lower() for token in tokens)
    parts = (part for token in lowered if token not in STOP_WORDS for part in _WORD.findall(token))
    return {part for part in parts if part not in STOP_WORDS and (len(part) > 1 or part.isdigit())}


def unique_rows(sources: Mapping[str, Iterable[Row]]) -> list[Row]:
    """Every text once, with its concepts' ends as tags and its source; texts of stop words alone are left out."""
    rows: dict[str, Row] = {}
    for source, found in sources.items():
        for row in found:
            text = " ".join(row["tokens"]).lower()
            if text not in rows and content_words(row["tokens"]):
                rows[text] = {"tokens": row["tokens"], "tags": boundaries(row["tags"]), "source": source}
    return list(rows.values())


@dataclass
class Division:
    """Which rows train may still have while test takes more and more words for itself."""

    rows: Sequence[Row]
    alive: np.ndarray = field(init=False)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.alive = np.ones(len(self.rows), dtype=bool)
        self.words = [sorted(content_words(row["tokens"])) for row in self.rows]
        names, self.source_of = np.unique([row["source"] for row in self.rows], return_inverse=True)
        self.sources = [str(name) for name in names]
        holders: dict[str, list[int]] = {}
        for place, words in enumerate(self.words):
            for word in words:
                holders.setdefault(word, []).append(place)
        self._holders = {word: np.array(places) for word, places in holders.items()}

    def lost(self, place: int) -> np.ndarray:
        """The rows that train loses if test takes this one, itself among them."""
        new = [self._holders[word] for word in self.words[place] if word not in self.taken]
        found: np.ndarray = np.unique(np.concatenate([np.array([place]), *new]))
        return np.array(found[self.alive[found]])

    def cost(self, lost: np.ndarray) -> float:
        """The same as a share of what each source has left, so that no source is used up for another."""
        left = np.bincount(self.source_of[self.alive], minlength=len(self.sources))
        gone = np.bincount(self.source_of[lost], minlength=len(self.sources))
        return float((gone / np.maximum(left, 1)).sum())

    def give(self, place: int) -> None:
        """Give a row to test."""
        self.alive[self.lost(place)] = False
        self.taken.update(self.words[place])


def divide(rows: Sequence[Row], *, test: int, dev: int, train: int, handful: int = 50, seed: int = 0) -> Splits:
    """`test` rows of each source, and up to `train` and `dev` of those that share no content word with them.

    Test rows are drawn one by one, source after source: of a handful of random rows the one that costs train least is
    taken. The best of all rows would leave train more, but they are odd ones, a few rare words each.
    """
    division, random = Division(rows), np.random.default_rng(seed)
    tested: list[int] = []
    for turn in range(test * len(division.sources)):
        free = np.flatnonzero(division.source_of == turn % len(division.sources))
        free = np.setdiff1d(free, tested)
        if not len(free):
            source = division.sources[turn % len(division.sources)]
            raise InputError(f"{source} has fewer than {test} rows for test")
        drawn = random.choice(free, min(handful, len(free)), replace=False)
        best = min(drawn.tolist(), key=lambda place: division.cost(division.lost(place)))
        division.give(best)
        tested.append(best)
    return {**_learning_splits(division, dev, train, random), "test": [rows[place] for place in tested]}


def _learning_splits(division: Division, dev: int, train: int, random: np.random.Generator) -> Splits:
    """Equal parts of every source, as test has; where little is left, dev and train share it in proportion."""
    splits: Splits = {"train": [], "dev": []}
    for number in range(len(division.sources)):
        left = random.permutation(np.flatnonzero(division.alive & (division.source_of == number)))
        share = min(dev, len(left) * dev // (dev + train))
        splits["dev"] += [division.rows[place] for place in left[:share]]
        splits["train"] += [division.rows[place] for place in left[share : share + train]]
    return splits


def shared_words(splits: Splits) -> set[str]:
    """Content words of test that train or dev have too; there are to be none."""
    words = {name: {word for row in rows for word in content_words(row["tokens"])} for name, rows in splits.items()}
    return words["test"] & (words["train"] | words["dev"])
