"""Select the corpus passages that share most words with the train texts, as a plug-in in one file.

endtask run --plugin examples/own_selector.py --task labels.csv --corpus notes/ --set select.name=common_words
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from endtask.io.selection_table import read_batches
from endtask.selectors.base import Candidates, Order, PartConfig, Ranking, RunContext, Selector, by_score, selectors


@selectors.register("common_words")
class CommonWords(Selector):
    """the passages of which most words are in the train texts"""

    class Config(PartConfig):
        """Options of `common_words`."""

        letters: int = Field(4, gt=0, description="shorter words do not count")

    config: Config

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates with the largest share of known words first; the score is this share."""
        known = {word for example in run.examples for word in self._words(example.text)}
        texts = (text for batch in read_batches(run.table, columns=["text"]) for text in batch.column(0).to_pylist())
        score = np.asarray([self._share(text, known) for text in texts])

        def reasons(indices: Order) -> list[str]:
            return [f"{share:.0%} of its words are in the task" for share in score[indices].tolist()]

        return Ranking(by_score(score, candidates), score, reasons)

    def _words(self, text: str) -> list[str]:
        return [word for word in text.lower().split() if len(word) >= self.config.letters]

    def _share(self, text: str, known: set[str]) -> float:
        words = self._words(text)
        return sum(word in known for word in words) / max(1, len(words))
