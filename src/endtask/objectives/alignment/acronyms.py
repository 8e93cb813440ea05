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
    FramedPairs,
    Made,
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
"""Words of a segment; the rest of a text may be shorter."""


@dataclass(frozen=True)
class Segments:
    """P runs of words, each of one text, with the signs between and behind them."""

    texts: AlignedTexts
    words: Indices  # (P, 2): the first and the one behind the last, of `texts.plain_words`
    text: Indices  # (P,)
    tokens: Indices  # (P, 2): the first and the one behind the last of its text

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def lengths(self) -> Indices:
        """How many tokens each has."""
        sizes: Indices = self.tokens[:, 1] - self.tokens[:, 0]
        return sizes

    def initials(self, segment: int) -> str:
        """The initials of its words."""
        return self.texts.initials[self.words[segment, 0] : self.words[segment, 1]]

    def token_ids(self, segment: int) -> Indices:
        """Its tokens, without special ones."""
        return self.texts[int(self.text[segment])][slice(*self.tokens[segment])]

    def of(self, chosen: NDArray[np.bool_]) -> Segments:
        """Some of them."""
        return Segments(self.texts, self.words[chosen], self.text[chosen], self.tokens[chosen])


def whole_texts(texts: AlignedTexts) -> Segments:
    """Every text with words as a single segment."""
    return _cut(texts, np.empty(0, dtype=np.int64))


def cut_texts(texts: AlignedTexts, random: np.random.Generator) -> Segments:
    """Every text cut into segments, twice as long ones half as often (uniform in the logarithm)."""
    count = len(texts.plain_words[0])
    sizes = np.exp(random.uniform(np.log(SHORTEST), np.log(LONGEST + 1), count // SHORTEST + 1)).astype(np.int64)
    ends = np.cumsum(sizes)
    return _cut(texts, ends[ends < count])


def _cut(texts: AlignedTexts, ends: Indices) -> Segments:
    """Cut behind words, numbered over all texts, and where texts end."""
    words, offsets = texts.plain_words
    cuts = np.unique(np.concatenate([offsets, ends]))
    first, last = cuts[:-1], cuts[1:]
    text = np.searchsorted(offsets, first, "right") - 1  # of texts without words none begins a segment
    next_word = words[np.minimum(last, len(words) - 1), 0]
    start = np.where(first == offsets[text], 1, words[first, 0])
    end = np.where(last == offsets[text + 1], texts.lengths[text] - 1, next_word)
    return Segments(texts, np.stack([first, last], axis=1), text, np.stack([start, end], axis=1))


FEWEST_WORDS, MOST_WORDS = 2, 6
_TRIES = 50
_BREAK = chr(NO_LETTER)


class AcronymMaker:
    """Positive and negative acronyms for those pieces of text that have two words in a row that begin with letters.

    A positive one is the initials of 2 to 6 words that follow each other. A negative one is such a positive one with
    one to all of its letters changed, or the initials of as many words of another piece, half each; one that happens to
    match the text is drawn again, with the same number of letters: else long acronyms would mostly be negative. For
    the same reason changed letters are drawn as often as words begin with them.
    """

    def __init__(self, segments: Segments) -> None:
        codes = segments.texts.plain_words[0][:, 2]
        has_letter = (codes != NO_LETTER) & (codes != SIGN)
        self._letters = codes[has_letter]
        follows = np.concatenate([[0, 0], np.cumsum(has_letter[:-1] & has_letter[1:])])  # pairs that end before a word
        first, behind = segments.words.T
        self.segments = segments.of(follows[behind] > follows[first + 1])

    def positive(self, initials: str, size: int, random: np.random.Generator) -> str | None:
        """The initials of `size` words that follow each other; None where no so many do."""
        runs = [run for run in initials.split(_BREAK) if len(run) >= size]
        starts_so_far = np.cumsum([len(run) - size + 1 for run in runs])
        if not runs:
            return None
        position = int(random.integers(starts_so_far[-1]))
        run = int(np.searchsorted(starts_so_far, position, "right"))
        start = position - (int(starts_so_far[run - 1]) if run else 0)
        return runs[run][start : start + size]

    def make(self, segment: int, wanted: bool, random: np.random.Generator) -> tuple[str, bool]:
        """Letters for a piece, and whether they match it: as wanted, unless no negative can be found."""
        initials = self.segments.initials(segment)
        size = int(random.integers(FEWEST_WORDS, min(MOST_WORDS, longest_run(initials)) + 1))
        positive = self.positive(initials, size, random)
        assert positive is not None
        if wanted:
            return positive, True
        mutated = random.random() < 0.5
        for _ in range(_TRIES):
            letters = self.mutate(positive, random) if mutated else self._foreign(segment, size, random)
            if letters is not None and letters not in initials:
                return letters, False
            mutated = mutated or letters is None
        return positive, True

    def mutate(self, letters: str, random: np.random.Generator) -> str:
        """One to all letters changed."""
        changed = list(letters)
        for position in random.permutation(len(letters))[: random.integers(1, len(letters) + 1)]:
            drawn = self._letters[random.integers(len(self._letters), size=_TRIES)]
            other = drawn[drawn != ord(letters[position])]
            changed[position] = chr(other[0]) if len(other) else letters[position]
        return "".join(changed)

    def _foreign(self, segment: int, size: int, random: np.random.Generator) -> str | None:
        """A positive one of another piece with as many letters; None where some draws find none."""
        for _ in range(_TRIES):
            other = int(random.integers(len(self.segments)))
            if other != segment and (letters := self.positive(self.segments.initials(other), size, random)):
                return letters
        return None


def longest_run(initials: str) -> int:
    """The most words in a row whose initials can be shown.

    >>> longest_run("ab" + chr(NO_LETTER) + "cde")
    3
    """
    return max(map(len, initials.split(_BREAK)))


def matches_of(letters: str, initials: str) -> list[int]:
    """All places where the letters begin, overlapping ones too.

    >>> matches_of("aba", "ababa")
    [0, 2]
    """
    return [position for position in range(len(initials)) if initials.startswith(letters, position)]


_LONGEST_ACRONYM = MOST_WORDS + 2
"""Tokens; a letter is one, and there may be some before the first."""
Drawn = tuple[int, str, bool]
"""A piece of text, letters, and whether they match it."""


def words_head(head: str) -> str:
    """The head that says which words the letters come from; no objective's own has such a name."""
    return f"{head}+words"


@objectives.register("acronyms")
class AcronymsObjective(AlignedObjective):
    """whether some letters are initials of words of a text"""

    class Config(PartConfig):
        """How much the network learns from an input."""

        guided: bool = Field(
            True,
            description="texts are cut into pieces, mostly short ones, and a second head learns of every token whether "
            "it belongs to the words that the letters come from; false: whole texts, one answer each, as in the paper",
        )

    config: Config

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield the head for texts and, if guided, the head for tokens."""
        yield from super().heads(name, network, settings)
        if self.config.guided:
            yield words_head(aligned_head(name)), network.architecture.token_head(with_classes(network, PAIR_CLASSES))

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective."""
        pairs = GuidedAcronyms if self.config.guided else Acronyms
        return pairs(name, texts, tokenizer_of(run), run.network, **common)


class Acronyms(FramedPairs):
    """`[CLS] acronym [SEP] text [SEP]`: class 1 where the letters are initials of words that follow each other."""

    needs = "text with two words in a row that begin with letters"

    def segments(self, texts: AlignedTexts) -> Segments:
        """What is read beside an acronym."""
        return whole_texts(texts)

    def choose(self, texts: AlignedTexts) -> tuple[Indices, Indices]:
        """Pieces with words that an acronym can be made of."""
        self.maker = AcronymMaker(self.segments(texts))
        chosen = self.maker.segments
        return np.arange(len(chosen)), chosen.lengths + self._frame.size + _LONGEST_ACRONYM

    def letters(self, step: int) -> list[Drawn]:
        """What a step's inputs are made of."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        wanted = half_of(len(positions), random)
        return [
            (int(segment), *self.maker.make(int(segment), bool(positive), random))
            for segment, positive in zip(positions, wanted, strict=True)
        ]

    def make(self, step: int) -> Made:
        """Acronyms in capitals, as in most texts, before the texts."""
        return self.made(self.letters(step))

    def made(self, drawn: list[Drawn]) -> Made:
        """The same of what was drawn."""
        acronyms = self._tokenizer([letters.upper() for _, letters, _ in drawn], add_special_tokens=False)["input_ids"]
        inputs = []
        for (segment, _, _), ids in zip(drawn, acronyms, strict=True):
            first: Indices = np.array(ids[:_LONGEST_ACRONYM], dtype=np.int64)
            inputs.append(self.framed(first, self.maker.segments.token_ids(segment)))
        return inputs, np.array([match for _, _, match in drawn], dtype=np.int64)


class GuidedAcronyms(Acronyms):
    """The same, of pieces of texts and with a second head, which answers for every token.

    One answer per text, and half of them right by chance, teach a young network nothing for very long. Many pieces
    have few words, and tokens are asked whether they stand in the words whose initials the letters are.
    """

    def segments(self, texts: AlignedTexts) -> Segments:
        """Texts cut up, the same at every step."""
        return cut_texts(texts, generator(self._seed, "pieces", self.name))

    def heads_of(self, head: str) -> tuple[str, ...]:
        """For texts and for tokens."""
        return head, words_head(head)

    def batch(self, step: int) -> TextBatch:
        """The labelled inputs of a step, with a class for each token of the texts."""
        drawn = self.letters(step)
        batch = self.laid_out(*self.made(drawn))
        labels = np.full(len(batch.input_ids), IGNORED, dtype=np.int64)
        for (segment, letters, match), end in zip(drawn, batch.offsets[1:].tolist(), strict=False):
            own = self.token_classes(segment, letters if match else None)
            behind = end - len(self._frame.after)
            labels[behind - len(own) : behind] = own
        return replace(batch, token_labels=torch.from_numpy(labels))

    def token_classes(self, segment: int, letters: str | None) -> Indices:
        """1 for the tokens of all words in a row whose initials these are, with what stands between them."""
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
        """Mean cross-entropy of both classes, and of those of tokens."""
        assert batch.token_labels is not None
        hidden = network(batch)
        match = self.match_loss(network, hidden, batch)
        answers = network.heads[words_head(self._head)](hidden)
        words = functional.cross_entropy(answers, batch.token_labels, ignore_index=IGNORED)
        return Loss(match + words, {"match": match, "words": words})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, one head once per input, and the other once per token."""
        return network.training_flops(batch, texts=batch.texts + batch.real_tokens)
