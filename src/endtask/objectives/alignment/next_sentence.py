"""Next-sentence prediction: does the second text go on where the first ends (Devlin et al., 2019)?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.objectives.alignment.pairs import AlignedObjective, FramedPairs, Made, NothingToMake, half_of, tokenizer_of
from endtask.objectives.base import BuiltObjective, objectives
from endtask.tokenization.aligned_texts import ADDED_TOKENS, AlignedTexts

if TYPE_CHECKING:
    from endtask.objectives.context import BuildContext

_TRIES = 50
Tokens = NDArray[np.int64]


@objectives.register("next_sentence")
class NextSentenceObjective(AlignedObjective):
    """whether a text follows another"""

    head_is_reused_last = True  # it answers yes and no too, but resembles a task only for lack of anything better

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective."""
        return NextSentence(name, texts, tokenizer_of(run), run.network, **common)


class NextSentence(FramedPairs):
    """A text cut at the start of a sentence; class 1 if its own rest follows, 0 if sentences of another document do.

    Either way the second text is cut off after the same number of tokens, drawn between half and all of the text's
    own rest: else the length of an input, or whether it ends with a sentence, would tell its class.
    """

    needs = "text of two sentences"

    def choose(self, texts: AlignedTexts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Texts with a sentence that does not stand at their start."""
        chosen = np.flatnonzero(texts.sentences.lengths)
        if len(np.unique(texts.documents[chosen])) < 2:
            raise NothingToMake("there are no two documents with two sentences each")
        return chosen, texts.lengths[chosen] + ADDED_TOKENS

    def make(self, step: int) -> Made:
        """Pairs of texts, half of them of one piece."""
        inputs, answers = [], []
        for first, second, _, follows in self.pairs(step):
            inputs.append(self.framed(first, second))
            answers.append(follows)
        return inputs, np.array(answers, dtype=np.int64)

    def pairs(self, step: int) -> list[tuple[Tokens, Tokens, tuple[int, int], bool]]:
        """(first text, second text, the packed texts both are of, whether the second follows) of a step's inputs."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        wanted = half_of(len(positions), random)
        return [
            self._pair(int(text_index), bool(follows), random)
            for text_index, follows in zip(positions, wanted, strict=True)
        ]

    def _pair(
        self, position: int, follows: bool, random: np.random.Generator
    ) -> tuple[Tokens, Tokens, tuple[int, int], bool]:
        start = self._sentence(position, random)
        tokens = self._texts[position][:-1]
        rest = len(tokens) - start
        size = int(random.integers(-(-rest // 2), rest + 1))
        other = None if follows else self._elsewhere(position, size, random)
        if other is None:
            return tokens[1:start], tokens[start : start + size], (position, position), True
        text_index, second = other
        return tokens[1:start], second, (position, text_index), False

    def _elsewhere(self, position: int, size: int, random: np.random.Generator) -> tuple[int, Tokens] | None:
        """As many tokens of another document from the start of a sentence on; the most that some draws find."""
        best: tuple[int, Tokens] | None = None
        for _ in range(_TRIES):
            other = int(self._chosen[random.integers(len(self._chosen))])
            if self._texts.documents[other] == self._texts.documents[position]:
                continue
            start = self._sentence(other, random)
            found = self._texts[other][start:-1][:size]
            if best is None or len(found) > len(best[1]):
                best = other, found
            if len(found) == size:
                break
        return best

    def _sentence(self, position: int, random: np.random.Generator) -> int:
        starts = self._texts.sentences[position]
        return int(starts[random.integers(len(starts))])
