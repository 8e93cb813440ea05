"""Pseudo acronym detection: are these letters the initials of some words of the text (objective alignment, 3.2)?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.objectives.made_pairs import FramedPairs, Made
from endtask.objectives.made_stream import half_of
from endtask.text.aligned_texts import ADDED_TOKENS, AlignedTexts
from endtask.text.text_words import NO_LETTER, SIGN

FEWEST_WORDS, MOST_WORDS = 2, 6
_TRIES = 50
_BREAK = chr(NO_LETTER)
_LONGEST_ACRONYM = ADDED_TOKENS - 4  # tokens; four are left for the frame of a pair


class AcronymMaker:
    """Positive and negative acronyms for texts.

    A positive one is the initials of 2 to 6 words that follow each other. A negative one is such a positive one with
    one to all of its letters changed, or the initials of as many words of another text, half each; one that happens to
    match the text is drawn again, with the same number of letters: else long acronyms would mostly be negative. For
    the same reason changed letters are drawn as often as words begin with them.
    """

    def __init__(self, texts: AlignedTexts) -> None:
        self._texts = texts
        codes = texts.words.values[:, 2]
        self._letters = codes[(codes != SIGN) & (codes != NO_LETTER)]
        self.chosen = np.flatnonzero(
            [longest_run(texts.initials(position)) >= FEWEST_WORDS for position in range(len(texts))]
        )

    def positive(self, initials: str, size: int, random: np.random.Generator) -> str | None:
        """The initials of `size` words that follow each other; None where no so many do."""
        runs = [run for run in initials.split(_BREAK) if len(run) >= size]
        places = np.cumsum([len(run) - size + 1 for run in runs])
        if not runs:
            return None
        place = int(random.integers(places[-1]))
        run = int(np.searchsorted(places, place, "right"))
        start = place - (int(places[run - 1]) if run else 0)
        return runs[run][start : start + size]

    def make(self, position: int, wanted: bool, random: np.random.Generator) -> tuple[str, bool]:
        """Letters for a text, and whether they match it: as wanted, unless no negative can be found."""
        initials = self._texts.initials(position)
        size = int(random.integers(FEWEST_WORDS, min(MOST_WORDS, longest_run(initials)) + 1))
        positive = self.positive(initials, size, random)
        assert positive is not None
        if wanted:
            return positive, True
        mutated = random.random() < 0.5
        for _ in range(_TRIES):
            letters = self.mutate(positive, random) if mutated else self._foreign(position, size, random)
            if letters is not None and letters not in initials:
                return letters, False
            mutated = mutated or letters is None
        return positive, True

    def mutate(self, letters: str, random: np.random.Generator) -> str:
        """One to all letters changed."""
        changed = list(letters)
        for place in random.permutation(len(letters))[: random.integers(1, len(letters) + 1)]:
            drawn = self._letters[random.integers(len(self._letters), size=_TRIES)]
            other = drawn[drawn != ord(letters[place])]
            changed[place] = chr(other[0]) if len(other) else letters[place]
        return "".join(changed)

    def _foreign(self, position: int, size: int, random: np.random.Generator) -> str | None:
        """A positive one of another text with as many letters; None where some draws find none."""
        for _ in range(_TRIES):
            other = int(self.chosen[random.integers(len(self.chosen))])
            if other != position and (letters := self.positive(self._texts.initials(other), size, random)):
                return letters
        return None


class Acronyms(FramedPairs):
    """`[CLS] acronym [SEP] text [SEP]`: class 1 where the letters are initials of words that follow each other."""

    needs = "text with two words in a row that begin with letters"

    def choose(self, texts: AlignedTexts) -> NDArray[np.int64]:
        """Texts with words that an acronym can be made of."""
        self.maker = AcronymMaker(texts)
        return self.maker.chosen

    def letters(self, step: int) -> list[tuple[int, str, bool]]:
        """(text, letters, whether they match) of a step's inputs."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        wanted = half_of(len(positions), random)
        return [
            (int(position), *self.maker.make(int(position), bool(positive), random))
            for position, positive in zip(positions, wanted, strict=True)
        ]

    def make(self, step: int) -> Made:
        """Acronyms in capitals, as in most texts, before the texts."""
        drawn = self.letters(step)
        shown = [letters.upper() for _, letters, _ in drawn]
        acronyms = self._tokenizer(shown, add_special_tokens=False)["input_ids"]
        inputs = []
        for (position, _, _), ids in zip(drawn, acronyms, strict=True):
            first: NDArray[np.int64] = np.array(ids[:_LONGEST_ACRONYM], dtype=np.int64)
            inputs.append(self.framed(first, self._texts[position][1:-1]))
        return inputs, np.array([match for _, _, match in drawn], dtype=np.int64)


def longest_run(initials: str) -> int:
    """The most words in a row whose initials can be shown.

    >>> longest_run("ab" + chr(NO_LETTER) + "cde")
    3
    """
    return max(map(len, initials.split(_BREAK)))
