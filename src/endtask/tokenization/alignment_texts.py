"""Packed texts from which aligned objectives make inputs and labels: with words, sentences, spans and titles."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.ragged import Ragged
from endtask.tokenization.text_words import SIGN

WORDS, SENTENCES, TITLES, DOCUMENTS = "words", "sentences", "titles", "documents"
MARKUP, FOUND = "links", "spans"
"""Spans of the rows' links, and those that the settings' own finder found."""
ADDED_TOKENS = 16
"""Texts are so many tokens shorter than the longest input: room for an acronym, a title or marks beside them."""


class AlignedTexts(PackedTexts):
    """Texts with [CLS] and [SEP] in place; all places are positions in a text's own tokens, [CLS] being 0."""

    @cached_property
    def words(self) -> Ragged:
        """(first token, token behind the last, initial) of each word or sign that lies wholly in a text.

        Initials are those of tokenization/text_words.py.
        """
        return Ragged(self.folder, WORDS)

    @cached_property
    def sentences(self) -> Ragged:
        """First tokens of the sentences that start inside a text."""
        return Ragged(self.folder, SENTENCES)

    @cached_property
    def titles(self) -> Ragged:
        """Token ids of each document's title, by the document's number; none where it has no title."""
        return Ragged(self.folder, TITLES)

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """The number of each text's document, ascending."""
        numbers: NDArray[np.int64] = np.load(self.folder / f"{DOCUMENTS}.npy")
        return numbers

    def spans(self, name: str) -> Ragged:
        """(first token, token behind the last, whole) of each span; one that a cut left only a part of is not whole.

        Nor is one that starts or ends inside a token.
        """
        return Ragged(self.folder, name)

    @cached_property
    def plain_words(self) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """The words of all texts end to end, signs left out, as `words` has them; and where each text's begin.

        All are in memory: in the narrow type that they are stored in.
        """
        values = np.asarray(self.words.values)
        is_word = values[:, 2] != SIGN
        return values[is_word], np.concatenate([[0], np.cumsum(is_word)])[self.words.offsets]

    @cached_property
    def initials(self) -> str:
        """The initials of `plain_words`, one character each."""
        # None is beyond the first 65,536 characters, so two bytes are one character.
        return self.plain_words[0][:, 2].astype("<u2").tobytes().decode("utf-16-le")
