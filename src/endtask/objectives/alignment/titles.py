"""Whether a title and a text belong together: pairs of a short text and a longer one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.objectives.alignment.pairs import FramedPairs, Made, NothingToMake, half_of
from endtask.tokenization.aligned_texts import ADDED_TOKENS, AlignedTexts

_TRIES = 50


class Titles(FramedPairs):
    """`[CLS] title [SEP] text [SEP]`: class 1 where it is the title of the text's own document."""

    needs = "text of a document with a title"

    def choose(self, texts: AlignedTexts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All texts of documents with a title."""
        self._titled = np.flatnonzero(texts.titles.lengths)
        if len(self._titled) < 2:
            raise NothingToMake("there are no two documents with a title")
        chosen = np.flatnonzero(np.isin(texts.documents, self._titled))
        return chosen, texts.lengths[chosen] + ADDED_TOKENS

    def titles(self, step: int) -> list[tuple[int, int, bool]]:
        """(text, document whose title stands before it, whether it is its own) of a step's inputs."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        drawn = []
        for position, own in zip(positions, half_of(len(positions), random), strict=True):
            document = int(self._texts.documents[position])
            other = document if own else self._other(document, random)
            drawn.append((int(position), other, other == document))
        return drawn

    def make(self, step: int) -> Made:
        """Titles before texts, half of them of other documents."""
        drawn = self.titles(step)
        inputs = [
            self.framed(self._texts.titles[title].astype(np.int64), self._texts[position][1:-1])
            for position, title, _ in drawn
        ]
        return inputs, np.array([own for _, _, own in drawn], dtype=np.int64)

    def _other(self, document: int, random: np.random.Generator) -> int:
        """A document with another title; the same one where some draws find none."""
        title = self._texts.titles[document]
        for _ in range(_TRIES):
            other = int(self._titled[random.integers(len(self._titled))])
            if not np.array_equal(self._texts.titles[other], title):
                return other
        return document
