"""Passages of a corpus that can be read again and again: all of them, or a random draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from endtask.corpus.corpus import Corpus
from endtask.records import Document
from endtask.seeds import generator


class DrawnDocuments:
    """At most `limit` passages, drawn by the seed, in the order of the corpus; `is_contaminated` says which to leave out."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        limit: int | None = None,
        seed: int = 0,
        is_contaminated: Callable[[str], bool] | None = None,
    ) -> None:
        self.corpus = corpus
        self._limit, self._seed, self._is_contaminated = limit, seed, is_contaminated

    def __iter__(self) -> Iterator[Document]:
        for number, document in enumerate(self.corpus.documents()):
            if self._drawn is not None and not self._drawn[number]:
                continue
            if self._is_contaminated is None or not self._is_contaminated(document.text):
                yield document

    @cached_property
    def _drawn(self) -> NDArray[np.bool_] | None:
        if self._limit is None:
            return None
        count = sum(1 for _ in self.corpus.documents())
        drawn = np.zeros(count, dtype=np.bool_)
        drawn[generator(self._seed, "aligned passages").permutation(count)[: self._limit]] = True
        return drawn
