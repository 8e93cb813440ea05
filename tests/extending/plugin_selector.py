"""A user's selector in one file: low perplexity under a character model of the task's texts.

endtask run --plugin plugin_selector.py --set select.name=perplexity --set select.order=4 ...
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from pydantic import Field

from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.selection_table import read_batches
from endtask.selectors.base import (
    Candidates,
    Order,
    PartConfig,
    Ranking,
    RunContext,
    Selector,
    by_score,
    ranks_of,
    selectors,
)
from endtask.task import Task


@selectors.register("perplexity")
class Perplexity(Selector):
    """low perplexity under a character n-gram model of the task's texts"""

    class Config(PartConfig):
        """Options of `perplexity`."""

        order: int = Field(3, ge=2, le=6, description="characters of an n-gram")
        smoothing: float = Field(0.1, gt=0, description="count that is added to every n-gram")

    config: Config

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` where no train text is long enough for an n-gram."""
        super().preflight(task, settings, has_corpus=has_corpus)
        if task is not None and all(len(example.text) < self.config.order for example in task.train):
            raise InputError(f"no train text has {self.config.order} characters", key="select.order")

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates with the lowest perplexity first; the score is its negative logarithm."""
        model = CharacterModel([example.text for example in run.examples], self.config.order, self.config.smoothing)
        texts = (text for batch in read_batches(run.table, columns=["text"]) for text in batch.column(0).to_pylist())
        score = np.asarray([model.mean_log_probability(text) for text in texts])
        order = by_score(score, candidates)
        rank = ranks_of(order)

        def reasons(indices: Order) -> list[str]:
            rows = zip(score[indices].tolist(), rank[indices].tolist(), strict=True)
            return [f"perplexity: {math.exp(-value):.1f}, rank {number}" for value, number in rows]

        return Ranking(order, score, reasons)


class CharacterModel:
    """p(character | the characters before it) by counts with additive smoothing."""

    def __init__(self, texts: list[str], order: int, smoothing: float) -> None:
        self.order, self.smoothing = order, smoothing
        self.characters = len({character for text in texts for character in text}) + 1  # and all unknown ones
        self.ngrams = Counter(ngram for text in texts for ngram in self._ngrams(text))
        self.contexts = Counter[str]()
        for ngram, count in self.ngrams.items():
            self.contexts[ngram[:-1]] += count

    def mean_log_probability(self, text: str) -> float:
        """Return the mean over the text's characters; that of a uniform guess for a text without n-grams."""
        ngrams = self._ngrams(text)
        if not ngrams:
            return -math.log(self.characters)
        return sum(map(self._log_probability, ngrams)) / len(ngrams)

    def _log_probability(self, ngram: str) -> float:
        count, context = self.ngrams[ngram] + self.smoothing, self.contexts[ngram[:-1]]
        return math.log(count / (context + self.smoothing * self.characters))

    def _ngrams(self, text: str) -> list[str]:
        return [text[start : start + self.order] for start in range(len(text) - self.order + 1)]
