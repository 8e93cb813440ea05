"""Next-sentence prediction: does the second text go on where the first ends (Devlin et al., 2019)?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.objectives.alignment.pairs import (
    AlignedObjective,
    LabelledPairs,
    NoUsableTexts,
    PairClassification,
    Tokens,
    half_of,
    tokenizer_of,
)
from endtask.objectives.base import BuiltObjective, objectives
from endtask.tokenization.aligned_texts import ADDED_TOKENS, AlignedTexts

if TYPE_CHECKING:
    from endtask.objectives.context import BuildContext

_TRIES = 50


@objectives.register("next_sentence")
class NextSentenceObjective(AlignedObjective):
    """whether a text follows another"""

    head_is_reused_last = True  # yes and no fit many tasks, but few tasks are about following sentences

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective."""
        return NextSentence(name, texts, tokenizer_of(run), run.network, **common)


class NextSentence(PairClassification):
    """A text cut at the start of a sentence; class 1 if its rest follows, 0 if sentences of another document do.

    In both classes the second text has the same number of tokens, drawn between half and all of the text's rest.
    Otherwise the length of an input, or whether it ends with a sentence, would reveal its class.
    """

    needs = "text of two sentences"

    def choose(self, texts: AlignedTexts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the texts in which a sentence starts after the beginning, and the most tokens of each pair."""
        chosen = np.flatnonzero(texts.sentences.lengths)
        if len(np.unique(texts.documents[chosen])) < 2:
            raise NoUsableTexts("there are no two documents with two sentences each")
        return chosen, texts.lengths[chosen] + ADDED_TOKENS

    def make(self, step: int) -> LabelledPairs:
        """Return pairs of texts, half of which follow each other."""
        inputs, answers = [], []
        for first, second, _, follows in self.pairs(step):
            inputs.append(self.join(first, second))
            answers.append(follows)
        return inputs, np.array(answers, dtype=np.int64)

    def pairs(self, step: int) -> list[tuple[Tokens, Tokens, tuple[int, int], bool]]:
        """Return (first, second, the numbers of their packed texts, whether the second follows) of a step's inputs."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        positive = half_of(len(positions), random)
        return [
            self._pair(int(position), bool(follows), random)
            for position, follows in zip(positions, positive, strict=True)
        ]

    def _pair(
        self, position: int, follows: bool, random: np.random.Generator
    ) -> tuple[Tokens, Tokens, tuple[int, int], bool]:
        start = self._sentence(position, random)
        tokens = self._texts[position][:-1]
        remaining = len(tokens) - start
        size = int(random.integers(-(-remaining // 2), remaining + 1))
        other = None if follows else self._from_other_document(position, size, random)
        if other is None:
            return tokens[1:start], tokens[start : start + size], (position, position), True
        other_position, second = other
        return tokens[1:start], second, (position, other_position), False

    def _from_other_document(self, position: int, size: int, random: np.random.Generator) -> tuple[int, Tokens] | None:
        """Return a text of another document and `size` of its tokens from a sentence on; fewer if draws find none."""
        best: tuple[int, Tokens] | None = None
        for _ in range(_TRIES):
            other = int(self._chosen[random.integers(len(self._chosen))])
            if self._texts.documents[other] == self._texts.documents[position]:
                continue
            start = self._sentence(other, random)
            tokens = self._texts[other][start:-1][:size]
            if best is None or len(tokens) > len(best[1]):
                best = other, tokens
            if len(tokens) == size:
                break
        return best

    def _sentence(self, position: int, random: np.random.Generator) -> int:
        starts = self._texts.sentences[position]
        return int(starts[random.integers(len(starts))])
