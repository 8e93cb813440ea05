"""Pseudo acronym detection: are these letters the initials of some words of the text (objective alignment, 3.2)?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn import functional

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import Network
from endtask.objectives.alignment.pairs import (
    PAIR_CLASSES,
    AlignedObjective,
    LabelledPairs,
    PairClassification,
    aligned_head,
    half_of,
    tokenizer_of,
    with_classes,
)
from endtask.objectives.base import BuiltObjective, Loss, PartConfig, objectives
from endtask.seeds import generator
from endtask.tokenization.aligned_texts import AlignedTexts
from endtask.tokenization.word_spans import NO_LETTER, SIGN

if TYPE_CHECKING:
    from endtask.config import Settings
    from endtask.objectives.context import BuildContext

Indices = NDArray[np.int64]
SHORTEST, LONGEST = 4, 64
"""Words of a segment; the last segment of a text may be shorter."""


@dataclass(frozen=True)
class Segments:
    """P runs of words, each from a single text, with the punctuation between and after them."""

    texts: AlignedTexts
    words: Indices  # (P, 2): first and end, in `texts.plain_words`
    text: Indices  # (P,)
    tokens: Indices  # (P, 2): first and end, in its text

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def lengths(self) -> Indices:
        """The number of tokens of each segment: (P,)."""
        sizes: Indices = self.tokens[:, 1] - self.tokens[:, 0]
        return sizes

    def initials(self, segment: int) -> str:
        """Return the initials of a segment's words."""
        return self.texts.initials[self.words[segment, 0] : self.words[segment, 1]]

    def token_ids(self, segment: int) -> Indices:
        """Return a segment's tokens, without special tokens."""
        return self.texts[int(self.text[segment])][slice(*self.tokens[segment])]

    def of(self, chosen: NDArray[np.bool_]) -> Segments:
        """Return the chosen segments."""
        return Segments(self.texts, self.words[chosen], self.text[chosen], self.tokens[chosen])


def whole_texts(texts: AlignedTexts) -> Segments:
    """Return every text that has words as a single segment."""
    return _cut(texts, np.empty(0, dtype=np.int64))


def cut_texts(texts: AlignedTexts, random: np.random.Generator) -> Segments:
    """Return every text cut into segments whose lengths in words are log-uniform."""
    count = len(texts.plain_words[0])
    sizes = np.exp(random.uniform(np.log(SHORTEST), np.log(LONGEST + 1), count // SHORTEST + 1)).astype(np.int64)
    ends = np.cumsum(sizes)
    return _cut(texts, ends[ends < count])


def _cut(texts: AlignedTexts, ends: Indices) -> Segments:
    """Return segments that end after some words, numbered over all texts, and where texts end."""
    words, offsets = texts.plain_words
    cuts = np.unique(np.concatenate([offsets, ends]))
    first, last = cuts[:-1], cuts[1:]
    text = np.searchsorted(offsets, first, "right") - 1  # skips texts without words
    next_word = words[np.minimum(last, len(words) - 1), 0]
    start = np.where(first == offsets[text], 1, words[first, 0])
    end = np.where(last == offsets[text + 1], texts.lengths[text] - 1, next_word)
    return Segments(texts, np.stack([first, last], axis=1), text, np.stack([start, end], axis=1))


FEWEST_WORDS, MOST_WORDS = 2, 6
_TRIES = 50
_BREAK = chr(NO_LETTER)


class AcronymMaker:
    """Makes positive and negative acronyms for segments with two words in a row that begin with letters.

    A positive acronym is the initials of 2 to 6 consecutive words. Half of the negative acronyms are positive ones with
    one to all letters changed, the others are initials of as many words of another segment. A negative acronym that
    matches the text by chance is drawn again with the same number of letters, so that long acronyms are not mostly
    negative. For the same reason changed letters are drawn as often as words begin with them.
    """

    def __init__(self, segments: Segments) -> None:
        codes = segments.texts.plain_words[0][:, 2]
        has_letter = (codes != NO_LETTER) & (codes != SIGN)
        self._letters = codes[has_letter]
        pairs_before = np.concatenate([[0, 0], np.cumsum(has_letter[:-1] & has_letter[1:])])  # that end before a word
        first, end = segments.words.T
        self.segments = segments.of(pairs_before[end] > pairs_before[first + 1])

    def positive(self, initials: str, size: int, random: np.random.Generator) -> str | None:
        """Return the initials of `size` consecutive words; None where no run of words is that long."""
        runs = [run for run in initials.split(_BREAK) if len(run) >= size]
        starts_so_far = np.cumsum([len(run) - size + 1 for run in runs])
        if not runs:
            return None
        position = int(random.integers(starts_so_far[-1]))
        run = int(np.searchsorted(starts_so_far, position, "right"))
        start = position - (int(starts_so_far[run - 1]) if run else 0)
        return runs[run][start : start + size]

    def make(self, segment: int, is_positive: bool, random: np.random.Generator) -> tuple[str, bool]:
        """Return letters for a segment and whether they match it: positive ones where no negative can be found."""
        initials = self.segments.initials(segment)
        size = int(random.integers(FEWEST_WORDS, min(MOST_WORDS, longest_run(initials)) + 1))
        positive = self.positive(initials, size, random)
        assert positive is not None
        if is_positive:
            return positive, True
        mutated = random.random() < 0.5
        for _ in range(_TRIES):
            letters = self.mutate(positive, random) if mutated else self._from_other_segment(segment, size, random)
            if letters is not None and letters not in initials:
                return letters, False
            mutated = mutated or letters is None
        return positive, True

    def mutate(self, letters: str, random: np.random.Generator) -> str:
        """Return the letters with one to all of them changed."""
        changed = list(letters)
        for position in random.permutation(len(letters))[: random.integers(1, len(letters) + 1)]:
            drawn = self._letters[random.integers(len(self._letters), size=_TRIES)]
            other = drawn[drawn != ord(letters[position])]
            changed[position] = chr(other[0]) if len(other) else letters[position]
        return "".join(changed)

    def _from_other_segment(self, segment: int, size: int, random: np.random.Generator) -> str | None:
        """Return a positive acronym of another segment; None where some draws find none of this size."""
        for _ in range(_TRIES):
            other = int(random.integers(len(self.segments)))
            if other != segment and (letters := self.positive(self.segments.initials(other), size, random)):
                return letters
        return None


def longest_run(initials: str) -> int:
    """Return the most consecutive words that begin with letters.

    >>> longest_run("ab" + chr(NO_LETTER) + "cde")
    3
    """
    return max(map(len, initials.split(_BREAK)))


def matches_of(letters: str, initials: str) -> list[int]:
    """Return all positions at which the letters occur, also overlapping.

    >>> matches_of("aba", "ababa")
    [0, 2]
    """
    return [position for position in range(len(initials)) if initials.startswith(letters, position)]


_LONGEST_ACRONYM = MOST_WORDS + 2
"""Most tokens of an acronym: one for each letter, and some that a tokenizer may add before the first."""
Acronym = tuple[int, str, bool]
"""A segment, letters, and whether they match it."""


def words_head(head: str) -> str:
    """Return the name of the head that predicts which words the letters come from; no objective can have it."""
    return f"{head}+words"


@objectives.register("acronyms")
class AcronymsObjective(AlignedObjective):
    """whether some letters are initials of words of a text"""

    class Config(PartConfig):
        """Whether tokens are predicted too."""

        guided: bool = Field(
            True,
            description="texts are cut into segments, mostly short ones, and a second head predicts for every token "
            "whether it belongs to the words of the letters; false: whole texts, one answer each, as in the paper",
        )

    config: Config

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield the head for texts and, if guided, the head for tokens."""
        yield from super().heads(name, network, settings)
        if self.config.guided:
            yield words_head(aligned_head(name)), network.architecture.token_head(with_classes(network, PAIR_CLASSES))

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective."""
        objective = GuidedAcronyms if self.config.guided else Acronyms
        return objective(name, texts, tokenizer_of(run), run.network, **common)


class Acronyms(PairClassification):
    """`[CLS] acronym [SEP] text [SEP]`: class 1 where the letters are initials of consecutive words."""

    needs = "text with two words in a row that begin with letters"

    def segments(self, texts: AlignedTexts) -> Segments:
        """Return the segments for which acronyms are made."""
        return whole_texts(texts)

    def choose(self, texts: AlignedTexts) -> tuple[Indices, Indices]:
        """Return the segments for which acronyms can be made, and the most tokens of each pair."""
        self.maker = AcronymMaker(self.segments(texts))
        chosen = self.maker.segments
        return np.arange(len(chosen)), chosen.lengths + self._template.size + _LONGEST_ACRONYM

    def letters(self, step: int) -> list[Acronym]:
        """Return the acronyms of a step."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        positive = half_of(len(positions), random)
        return [
            (int(segment), *self.maker.make(int(segment), bool(is_positive), random))
            for segment, is_positive in zip(positions, positive, strict=True)
        ]

    def make(self, step: int) -> LabelledPairs:
        """Return pairs of an acronym and its segment, labelled by whether they match."""
        return self.inputs(self.letters(step))

    def inputs(self, acronyms: list[Acronym]) -> LabelledPairs:
        """Return the inputs of some acronyms, which are in capitals, as in most texts."""
        capitals = [letters.upper() for _, letters, _ in acronyms]
        token_ids = self._tokenizer(capitals, add_special_tokens=False)["input_ids"]
        inputs = []
        for (segment, _, _), ids in zip(acronyms, token_ids, strict=True):
            first: Indices = np.array(ids[:_LONGEST_ACRONYM], dtype=np.int64)
            inputs.append(self.join(first, self.maker.segments.token_ids(segment)))
        return inputs, np.array([match for _, _, match in acronyms], dtype=np.int64)


class GuidedAcronyms(Acronyms):
    """Acronyms of segments, with a second head that predicts for every token whether its word gave a letter.

    From one binary answer per long text an untrained network learns nothing for many steps. Many segments have few
    words, and every token gives an answer.
    """

    def segments(self, texts: AlignedTexts) -> Segments:
        """Return the texts cut into segments, which are the same at every step."""
        return cut_texts(texts, generator(self._seed, "pieces", self.name))

    def heads_of(self, head: str) -> tuple[str, ...]:
        """Return the names of the heads for texts and for tokens."""
        return head, words_head(head)

    def batch(self, step: int) -> TextBatch:
        """Return the labelled inputs of a step, with a class for each token of the texts."""
        acronyms = self.letters(step)
        batch = self.stream.with_shares(self.lay_out(*self.inputs(acronyms)), step)
        labels = np.full(len(batch.input_ids), IGNORED, dtype=np.int64)
        for (segment, letters, match), end in zip(acronyms, batch.offsets[1:].tolist(), strict=False):
            classes = self.token_classes(segment, letters if match else None)
            text_end = end - len(self._template.after)
            labels[text_end - len(classes) : text_end] = classes
        return replace(batch, token_labels=torch.from_numpy(labels))

    def token_classes(self, segment: int, letters: str | None) -> Indices:
        """Return 1 for the tokens of all runs of words with these initials, and for the tokens between them; else 0."""
        segments = self.maker.segments
        classes = np.zeros(int(segments.lengths[segment]), dtype=np.int64)
        if letters is None:
            return classes
        words = (
            segments.texts.plain_words[0][slice(*segments.words[segment]), :2].astype(np.int64)
            - segments.tokens[segment, 0]
        )
        for position in matches_of(letters, segments.initials(segment)):
            classes[words[position, 0] : words[position + len(letters) - 1, 1]] = 1
        return classes

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return the mean cross-entropy of both classes, plus that of the tokens' classes, each by its share."""
        assert batch.token_labels is not None
        hidden = network(batch)
        match = self.match_loss(network, hidden, batch)
        logits = network.heads[words_head(self._head)](hidden)
        words = batch.of_labelled(functional.cross_entropy(logits, batch.token_labels, ignore_index=IGNORED))
        return Loss(batch.text_share * match + batch.token_share * words, {"match": match, "words": words})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of the encoder, of a head once per input, and of the other once per token."""
        return network.training_flops(batch, texts=batch.texts + batch.real_tokens)
