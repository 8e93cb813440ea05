"""What can be said of a selection before anything is trained on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import read_batches, read_statistics
from endtask.progress import bar
from endtask.retrieval.scan import string_keys
from endtask.retrieval.words import word_hash
from endtask.selectors.base import RunContext
from endtask.selectors.best_rank import best_rank
from endtask.selectors.draws import table_draws
from endtask.selectors.fill_budget import fill
from endtask.selectors.label_words import label_words
from endtask.selectors.ngrams import BUCKETS, Counts, bucket_counts, column_keys, example_keys, table_rows
from endtask.selectors.overlap import overlap

_DIGITS = 6


def quality(run: RunContext, selection: Path) -> dict[str, Any]:
    """Figures of a selection beside those of what was retrieved.

    `kl_reduction` is how much closer to the task's words and word pairs the selection is than a random draw of as many
    bytes from what was retrieved, in nats; `label_words` tells how much of it are words that tell a class, beside the
    whole retrieved set; `overlap` compares it with `best_rank`.
    """
    words = sorted({word for found in label_words(run.examples).values() for word in found})
    keys = np.sort(np.asarray([word_hash(word) for word in words], dtype=np.uint64))
    task = bucket_counts(example_keys(run.examples))
    kept = survey(selection, keys, "what was kept")
    candidates = run.retrieved / RETRIEVED
    has_candidates = candidates.exists() and table_rows(candidates) > 0
    retrieved = survey(candidates, keys, "what was retrieved") if has_candidates else None
    background = np.zeros_like(task) if retrieved is None else retrieved.buckets
    found: dict[str, Any] = {"kl": _rounded(divergence(task, kept.buckets, background))}
    label_statistics: dict[str, Any] = {
        "words": len(keys),
        "found": int(np.count_nonzero(kept.hits)),
        "share": _rounded(kept.share),
    }
    if retrieved is not None:
        drawn = random_draw(candidates, int(read_statistics(selection).bytes.sum()), run.seed)
        other = survey(candidates, keys, "a random draw", drawn)
        found["kl_random"] = _rounded(divergence(task, other.buckets, background))
        found["kl_reduction"] = _rounded(found["kl_random"] - found["kl"])
        label_statistics["share_retrieved"] = _rounded(retrieved.share)
        if not run.settings.part.is_plain_rank:
            found["overlap"] = {"best_rank": overlap(table_ids(selection), _best_ranked(run))}
    return {**found, "label_words": label_statistics} if len(keys) else found


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


def survey(table: Path, label_keys: NDArray[np.uint64], what: str, kept: NDArray[np.bool_] | None = None) -> Survey:
    """Read a selection table's texts once, or those of the rows marked; `label_keys` are sorted."""
    buckets = np.zeros(BUCKETS, dtype=np.int64)
    hits = np.zeros(len(label_keys), dtype=np.int64)
    words = 0
    with bar(f"count words of {what}", table_rows(table) if kept is None else int(kept.sum())) as advance:
        for batch in read_batches(table, kept, ["text"]):
            found = column_keys(batch.column(0))
            buckets += bucket_counts(found)
            hits += _hits(found.keys, label_keys)
            words += len(found.keys)
            advance(len(batch))
    return Survey(buckets, words, hits)


def random_draw(table: Path, size: int, seed: int) -> NDArray[np.bool_]:
    """Mark random rows of a table whose texts come closest to `size` bytes, one at least."""
    order = np.argsort(table_draws(table, seed, "quality"), kind="stable")
    sizes = np.cumsum(read_statistics(table).bytes[order])
    marked = np.zeros(len(order), dtype=bool)
    marked[order[: int(np.argmin(np.abs(sizes - size))) + 1]] = True
    return marked


def divergence(task: Counts, other: Counts, background: Counts) -> float:
    """KL(task || other) in nats over the buckets.

    As many imagined n-grams as there are buckets, spread as in `background` (which counts each bucket once more than
    it was hit), are added to both: of few words little is known, so these are taken to be like all others.

    >>> round(divergence(np.array([7, 1]), np.array([1, 7]), np.array([0, 0])), 3)
    0.832
    """
    imagined = len(task) * (background + 1.0) / (background.sum() + len(task))
    p, q = ((counts + imagined) / (counts.sum() + len(task)) for counts in (task, other))
    return float(np.sum(p * np.log(p / q)))


def table_ids(table: Path, kept: NDArray[np.bool_] | None = None) -> NDArray[np.uint64]:
    """A key for the id of each passage of a table, or of those marked."""
    keys = [string_keys(batch.column(0).to_pylist()) for batch in read_batches(table, kept, ["id"])]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *keys])


def _best_ranked(run: RunContext) -> NDArray[np.uint64]:
    """What `best_rank` would keep under the same budget."""
    candidates = run.retrieved / RETRIEVED
    statistics = read_statistics(candidates)
    best = fill(best_rank(statistics), statistics.bytes, run.settings.budget, corpus_bytes=run.corpus_bytes)
    kept = np.zeros(len(statistics.rank), dtype=bool)
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
