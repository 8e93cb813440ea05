"""The baseline: passages drawn at random from the corpus, independent of the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.config import SizeBudget
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.run_layout import PASSAGE_SIZES, RETRIEVED
from endtask.io.selection_table import Batch, read_statistics, selection_batch, write_batches
from endtask.records import Document
from endtask.seeds import generator
from endtask.selectors.base import Order, RunContext, Selected, Selector, fill, selectors

_ROWS_PER_BATCH = 1000


@selectors.register("random")
class Random(Selector):
    """drawn at random from the whole corpus (the baseline)"""

    opens_corpus = True

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write a seeded uniform draw from all uncontaminated passages, as large as the selection of `best_rank`."""
        assert run.corpus is not None
        sizes = np.load(run.retrieved / PASSAGE_SIZES).astype(np.int64)
        cause = "nothing was retrieved, or the contamination filter left no passage"
        selected = _limit_budget(run).fill_budget(random_order(sizes, run.seed), sizes, cause=cause)
        draw = np.zeros(len(sizes), dtype=np.int64)
        draw[selected] = np.arange(1, len(selected) + 1)
        written = write_batches(path, drawn_batches("random", run.corpus, draw, sizes, run.seed))
        return Selected(written, int(sizes[selected].sum()), {})


def random_order(sizes: NDArray[np.int64], seed: int) -> Order:
    """Return all positions with text, shuffled; passages appended to the corpus do not change the order of the others.

    >>> order = random_order(np.array([5, 0, 5, 5]), seed=0).tolist()
    >>> sorted(order), order == [number for number in random_order(np.array([5, 0, 5, 5, 5]), 0).tolist() if number < 4]
    ([0, 2, 3], True)
    """
    # NumPy guarantees the stream of raw 64-bit numbers in all versions, but not the results of `permutation`.
    keys = generator(seed, "select", "random").bit_generator.random_raw(len(sizes))
    order = np.argsort(keys, kind="stable")
    return order[sizes[order] > 0]


def documents_at(corpus: Corpus, positions: Order) -> Iterator[tuple[int, Document]]:
    """Yield the passages at some positions of the corpus, which must be sorted."""
    selected = set(positions.tolist())
    stop = int(positions[-1]) + 1 if len(positions) else 0
    documents = enumerate(islice(corpus.documents(), stop))
    return ((position, document) for position, document in documents if position in selected)


def _limit_budget(run: RunContext) -> RunContext:
    """Return the context with a budget of at most the retrieved text, all that `best_rank` can select."""
    sizes = read_statistics(run.retrieved / RETRIEVED).bytes
    budget, corpus_bytes = run.settings.budget, run.corpus_bytes
    if len(fill(np.arange(len(sizes)), sizes, budget, corpus_bytes=corpus_bytes)) < len(sizes):
        return run
    if budget is not None and budget.unit == "passages":
        limit = SizeBudget(len(sizes), "passages", f"{len(sizes)}passages")
    else:
        limit = SizeBudget(int(sizes.sum()), "bytes", f"{int(sizes.sum())}B")
    return replace(run, settings=run.settings.model_copy(update={"budget": limit}))


def drawn_batches(
    name: str, corpus: Corpus, draw: NDArray[np.int64], sizes: NDArray[np.int64], seed: int
) -> Iterator[Batch]:
    """Yield the drawn passages in the order of the corpus.

    `draw` holds for each passage its number in the draw, 0 if it was not drawn. Raise `InputError` if a text no longer
    has the size in `sizes`.
    """
    drawn = documents_at(corpus, np.flatnonzero(draw))
    while chunk := list(islice(drawn, _ROWS_PER_BATCH)):
        positions = np.asarray([position for position, _ in chunk], dtype=np.int64)
        documents = [document for _, document in chunk]
        sizes_read = np.asarray([len(document.text.encode()) for document in documents])
        if not np.array_equal(sizes_read, sizes[positions]):
            raise InputError("the corpus changed since it was searched", hint="redo with --from retrieve")
        draws = draw[positions]
        yield selection_batch(
            documents,
            position=positions,
            rank=draws,
            score=np.zeros(len(chunk)),
            matched_count=np.zeros(len(chunk)),
            matched_queries=[()] * len(chunk),
            reason=[f"{name}: draw {number} of seed {seed}" for number in draws.tolist()],
        )
