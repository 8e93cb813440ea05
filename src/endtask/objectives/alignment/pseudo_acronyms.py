"""Letters that are the initials of words of a text, or are not (objective alignment, 3.2)."""

from __future__ import annotations

import numpy as np

from endtask.objectives.alignment.text_segments import Pieces
from endtask.tokenization.words import NO_LETTER, SIGN

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

    def __init__(self, pieces: Pieces) -> None:
        codes = pieces.texts.plain_words[0][:, 2]
        has_letter = (codes != NO_LETTER) & (codes != SIGN)
        self._letters = codes[has_letter]
        follows = np.concatenate([[0, 0], np.cumsum(has_letter[:-1] & has_letter[1:])])  # pairs that end before a word
        first, behind = pieces.words.T
        self.pieces = pieces.of(follows[behind] > follows[first + 1])

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

    def make(self, piece: int, wanted: bool, random: np.random.Generator) -> tuple[str, bool]:
        """Letters for a piece, and whether they match it: as wanted, unless no negative can be found."""
        initials = self.pieces.initials(piece)
        size = int(random.integers(FEWEST_WORDS, min(MOST_WORDS, longest_run(initials)) + 1))
        positive = self.positive(initials, size, random)
        assert positive is not None
        if wanted:
            return positive, True
        mutated = random.random() < 0.5
        for _ in range(_TRIES):
            letters = self.mutate(positive, random) if mutated else self._foreign(piece, size, random)
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

    def _foreign(self, piece: int, size: int, random: np.random.Generator) -> str | None:
        """A positive one of another piece with as many letters; None where some draws find none."""
        for _ in range(_TRIES):
            other = int(random.integers(len(self.pieces)))
            if other != piece and (letters := self.positive(self.pieces.initials(other), size, random)):
                return letters
        return None


def longest_run(initials: str) -> int:
    """The most words in a row whose initials can be shown.

    >>> longest_run("ab" + chr(NO_LETTER) + "cde")
    3
    """
    return max(map(len, initials.split(_BREAK)))


def places_of(letters: str, initials: str) -> list[int]:
    """All places where the letters begin, overlapping ones too.

    >>> places_of("aba", "ababa")
    [0, 2]
    """
    return [place for place in range(len(initials)) if initials.startswith(letters, place)]
