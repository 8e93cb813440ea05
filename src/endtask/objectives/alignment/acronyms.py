"""Pseudo acronym detection: are these letters the initials of some words of the text (objective alignment, 3.2)?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import Network
from endtask.objectives.alignment.pairs import FramedPairs, Made
from endtask.objectives.alignment.pseudo_acronyms import MOST_WORDS, AcronymMaker, places_of
from endtask.objectives.alignment.stream import half_of
from endtask.objectives.alignment.text_segments import Pieces, cut_texts, whole_texts
from endtask.objectives.base import Loss
from endtask.seeds import generator
from endtask.tokenization.aligned_texts import AlignedTexts

_LONGEST_ACRONYM = MOST_WORDS + 2
"""Tokens; a letter is one, and there may be some before the first."""
Whole = NDArray[np.int64]
Drawn = tuple[int, str, bool]
"""A piece of text, letters, and whether they match it."""


def words_head(head: str) -> str:
    """The head that says which words the letters come from; no objective's own has such a name."""
    return f"{head}+words"


class Acronyms(FramedPairs):
    """`[CLS] acronym [SEP] text [SEP]`: class 1 where the letters are initials of words that follow each other."""

    needs = "text with two words in a row that begin with letters"

    def pieces(self, texts: AlignedTexts) -> Pieces:
        """What is read beside an acronym."""
        return whole_texts(texts)

    def choose(self, texts: AlignedTexts) -> tuple[Whole, Whole]:
        """Pieces with words that an acronym can be made of."""
        self.maker = AcronymMaker(self.pieces(texts))
        chosen = self.maker.pieces
        return np.arange(len(chosen)), chosen.lengths + self._frame.size + _LONGEST_ACRONYM

    def letters(self, step: int) -> list[Drawn]:
        """What a step's inputs are made of."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        wanted = half_of(len(positions), random)
        return [
            (int(piece), *self.maker.make(int(piece), bool(positive), random))
            for piece, positive in zip(positions, wanted, strict=True)
        ]

    def make(self, step: int) -> Made:
        """Acronyms in capitals, as in most texts, before the texts."""
        return self.made(self.letters(step))

    def made(self, drawn: list[Drawn]) -> Made:
        """The same of what was drawn."""
        acronyms = self._tokenizer([letters.upper() for _, letters, _ in drawn], add_special_tokens=False)["input_ids"]
        inputs = []
        for (piece, _, _), ids in zip(drawn, acronyms, strict=True):
            first: Whole = np.array(ids[:_LONGEST_ACRONYM], dtype=np.int64)
            inputs.append(self.framed(first, self.maker.pieces.token_ids(piece)))
        return inputs, np.array([match for _, _, match in drawn], dtype=np.int64)


class GuidedAcronyms(Acronyms):
    """The same, of pieces of texts and with a second head, which answers for every token.

    One answer per text, and half of them right by chance, teach a young network nothing for very long. Many pieces
    have few words, and tokens are asked whether they stand in the words whose initials the letters are.
    """

    def pieces(self, texts: AlignedTexts) -> Pieces:
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
        for (piece, letters, match), end in zip(drawn, batch.offsets[1:].tolist(), strict=False):
            own = self.token_classes(piece, letters if match else None)
            behind = end - len(self._frame.after)
            labels[behind - len(own) : behind] = own
        return replace(batch, token_labels=torch.from_numpy(labels))

    def token_classes(self, piece: int, letters: str | None) -> Whole:
        """1 for the tokens of all words in a row whose initials these are, with what stands between them."""
        pieces = self.maker.pieces
        classes = np.zeros(int(pieces.lengths[piece]), dtype=np.int64)
        if letters is None:
            return classes
        words = pieces.texts.plain_words[0][slice(*pieces.words[piece]), :2].astype(np.int64) - pieces.tokens[piece, 0]
        for place in places_of(letters, pieces.initials(piece)):
            classes[words[place, 0] : words[place + len(letters) - 1, 1]] = 1
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
