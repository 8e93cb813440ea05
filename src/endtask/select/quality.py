"""What can be said of a selection before anything is trained on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.files.run_layout import RETRIEVED
from endtask.files.selection_table import read_batches, read_figures
from endtask.progress import bar
from endtask.retrieve.scan import string_keys
from endtask.retrieve.words import word_hash
from endtask.select.best_rank import best_rank
from endtask.select.fill import fill
from endtask.select.inputs import Inputs
from endtask.select.label_words import label_words
from endtask.select.ngrams import BUCKETS, Counts, bucket_counts, column_keys, example_keys, table_rows
from endtask.select.overlap import overlap

_DIGITS = 6


def quality(inputs: Inputs, selection: Path) -> dict[str, Any]:
    """Figures of a selection beside those of all that was retrieved, which is what a random draw from it would have.

    `kl_reduction` is how much closer to the task's words and word pairs the selection is, in nats (as in the DSIR
    paper); `label_words` tells how much of it are words that tell a class; `overlap` compares it with `best_rank`.
    """
    words = sorted({word for found in label_words(inputs.examples).values() for word in found})
    keys = np.sort(np.asarray([word_hash(word) for word in words], dtype=np.uint64))
    task = bucket_counts(example_keys(inputs.examples))
    kept = survey(selection, keys, "what was kept")
    found: dict[str, Any] = {"kl": _rounded(divergence(task, kept.buckets))}
    label_figures: dict[str, Any] = {
        "words": len(keys),
        "found": int(np.count_nonzero(kept.hits)),
        "share": _rounded(kept.share),
    }
    candidates = inputs.retrieved / RETRIEVED
    if candidates.exists() and table_rows(candidates):
        retrieved = survey(candidates, keys, "what was retrieved")
        found["kl_retrieved"] = _rounded(divergence(task, retrieved.buckets))
        found["kl_reduction"] = _rounded(found["kl_retrieved"] - found["kl"])
        label_figures["share_retrieved"] = _rounded(retrieved.share)
        if inputs.settings.selector != "best_rank" or inputs.settings.per_class:
            found["overlap"] = {"best_rank": overlap(table_ids(selection), _best_ranked(inputs))}
    return {**found, "label_words": label_figures} if len(keys) else found


@dataclass(frozen=True)
class Survey:
    """Counts over a table's texts: n-grams by bucket, all words, and how often each label word stands there."""

    buckets: Counts
    words: int
    hits: Counts

    @property
    def share(self) -> float:
        """The part of all words that are label words."""
        return float(self.hits.sum()) / max(self.words, 1)


def survey(table: Path, label_keys: NDArray[np.uint64], what: str) -> Survey:
    """Read a selection table's texts once; `label_keys` are sorted."""
    buckets = np.zeros(BUCKETS, dtype=np.int64)
    hits = np.zeros(len(label_keys), dtype=np.int64)
    words = 0
    with bar(f"count words of {what}", table_rows(table)) as advance:
        for batch in read_batches(table, columns=["text"]):
            found = column_keys(batch.column(0))
            buckets += bucket_counts(found)
            hits += _hits(found.keys, label_keys)
            words += len(found.keys)
            advance(len(batch))
    return Survey(buckets, words, hits)


def divergence(task: Counts, other: Counts) -> float:
    """KL(task || other) in nats over the buckets, each counted once more than it was hit.

    >>> round(divergence(np.array([7, 1]), np.array([1, 7])), 3)
    0.832
    """
    p = (task + 1.0) / (task.sum() + len(task))
    q = (other + 1.0) / (other.sum() + len(other))
    return float(np.sum(p * np.log(p / q)))


def table_ids(table: Path, kept: NDArray[np.bool_] | None = None) -> NDArray[np.uint64]:
    """A key for the id of each passage of a table, or of those marked."""
    keys = [string_keys(batch.column(0).to_pylist()) for batch in read_batches(table, kept, ["id"])]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *keys])


def _best_ranked(inputs: Inputs) -> NDArray[np.uint64]:
    """What `best_rank` would keep under the same budget."""
    candidates = inputs.retrieved / RETRIEVED
    figures = read_figures(candidates)
    best = fill(best_rank(figures), figures.bytes, inputs.settings.budget, corpus_bytes=inputs.corpus_bytes)
    kept = np.zeros(len(figures.rank), dtype=bool)
    kept[best] = True
    return table_ids(candidates, kept)


def _hits(keys: NDArray[np.uint64], label_keys: NDArray[np.uint64]) -> Counts:
    """How often each label word is among the keys."""
    if not len(label_keys):
        return np.zeros(0, dtype=np.int64)
    places = np.minimum(np.searchsorted(label_keys, keys), len(label_keys) - 1)
    return np.bincount(places[label_keys[places] == keys], minlength=len(label_keys))


def _rounded(figure: float) -> float:
    return round(figure, _DIGITS)
