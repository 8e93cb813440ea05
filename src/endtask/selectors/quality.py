"""Statistics of a selection that need no training: its distance to the task, label words and overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import read_batches, read_statistics, table_rows
from endtask.progress import bar
from endtask.records import Example
from endtask.retrieval.bm25.scan import string_keys
from endtask.retrieval.words import word_hash, words_of
from endtask.selectors.base import RunContext, by_bm25_rank, fill, mask_of, overlap
from endtask.selectors.hashing import BUCKETS, Counts, bucket_counts, column_keys, example_keys, table_draws

MOST_WORDS = 50
"""The most label words of a class."""
LEAST_ROWS = 5
"""The fewest rows of a class that must contain a label word: rarer words occur in a single class by chance."""
_DIGITS = 6


def quality(run: RunContext, selection: Path) -> dict[str, Any]:
    """Return statistics of a selection, compared with the retrieved passages.

    `kl_reduction` is how much closer to the task's words and word pairs the selection is than a random draw of as many
    bytes from the retrieved passages, in nats; `label_words` has the share of words that are typical of a class, in the
    selection and in all retrieved passages; `overlap` compares the selection with `best_rank`.
    """
    words = sorted({word for class_words in label_words(run.examples).values() for word in class_words})
    keys = np.sort(np.asarray([word_hash(word) for word in words], dtype=np.uint64))
    task = bucket_counts(example_keys(run.examples))
    selected = survey(selection, keys, "the selection")
    candidates = run.retrieved / RETRIEVED
    has_candidates = candidates.exists() and table_rows(candidates) > 0
    retrieved = survey(candidates, keys, "the retrieved passages") if has_candidates else None
    background = np.zeros_like(task) if retrieved is None else retrieved.buckets
    statistics: dict[str, Any] = {"kl": _rounded(divergence(task, selected.buckets, background))}
    label_statistics: dict[str, Any] = {
        "words": len(keys),
        "found": int(np.count_nonzero(selected.hits)),
        "share": _rounded(selected.share),
    }
    if retrieved is not None:
        draw = random_draw(candidates, int(read_statistics(selection).bytes.sum()), run.seed)
        drawn = survey(candidates, keys, "a random draw", draw)
        statistics["kl_random"] = _rounded(divergence(task, drawn.buckets, background))
        statistics["kl_reduction"] = _rounded(statistics["kl_random"] - statistics["kl"])
        label_statistics["share_retrieved"] = _rounded(retrieved.share)
        if not run.settings.part.is_plain_rank:
            statistics["overlap"] = {"best_rank": overlap(table_ids(selection), _best_ranked(run))}
    return {**statistics, "label_words": label_statistics} if len(keys) else statistics


@dataclass(frozen=True)
class Survey:
    """Counts over a table's texts: n-grams by bucket, all words, and how often each label word occurs."""

    buckets: Counts
    words: int
    hits: Counts

    @property
    def share(self) -> float:
        """The share of label words among all words."""
        return float(self.hits.sum()) / max(self.words, 1)


def survey(table: Path, label_keys: NDArray[np.uint64], what: str, selected: NDArray[np.bool_] | None = None) -> Survey:
    """Count over the texts of a selection table, or of its `selected` rows; `label_keys` are sorted."""
    buckets = np.zeros(BUCKETS, dtype=np.int64)
    hits = np.zeros(len(label_keys), dtype=np.int64)
    words = 0
    with bar(f"count words of {what}", table_rows(table) if selected is None else int(selected.sum())) as advance:
        for batch in read_batches(table, selected, ["text"]):
            batch_words = column_keys(batch.column(0))
            buckets += bucket_counts(batch_words)
            hits += _hits(batch_words.keys, label_keys)
            words += len(batch_words.keys)
            advance(len(batch))
    return Survey(buckets, words, hits)


def random_draw(table: Path, size: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask of random rows, at least one, whose texts together come closest to `size` bytes."""
    order = np.argsort(table_draws(table, seed, "quality"), kind="stable")
    sizes = np.cumsum(read_statistics(table).bytes[order])
    return mask_of(order[: int(np.argmin(np.abs(sizes - size))) + 1], len(order))


def divergence(task: Counts, other: Counts, background: Counts) -> float:
    """Return KL(task || other) in nats over the buckets.

    Both are smoothed by as many n-grams as there are buckets, distributed as in `background` with one more count per
    bucket: a short text is assumed to be like the background.

    >>> round(divergence(np.array([7, 1]), np.array([1, 7]), np.array([0, 0])), 3)
    0.832
    """
    prior = len(task) * (background + 1.0) / (background.sum() + len(task))
    p, q = ((counts + prior) / (counts.sum() + len(task)) for counts in (task, other))
    return float(np.sum(p * np.log(p / q)))


def table_ids(table: Path, selected: NDArray[np.bool_] | None = None) -> NDArray[np.uint64]:
    """Return a hash of the id of each passage of a table, or of its `selected` rows."""
    keys = [string_keys(batch.column(0).to_pylist()) for batch in read_batches(table, selected, ["id"])]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *keys])


def _best_ranked(run: RunContext) -> NDArray[np.uint64]:
    """Return the ids that `best_rank` would select under the same budget."""
    candidates = run.retrieved / RETRIEVED
    statistics = read_statistics(candidates)
    best = fill(by_bm25_rank(statistics), statistics.bytes, run.settings.budget, corpus_bytes=run.corpus_bytes)
    return table_ids(candidates, mask_of(best, len(statistics.rank)))


def _hits(keys: NDArray[np.uint64], label_keys: NDArray[np.uint64]) -> Counts:
    """Return how often each label word occurs among the keys."""
    if not len(label_keys):
        return np.zeros(0, dtype=np.int64)
    indices = np.minimum(np.searchsorted(label_keys, keys), len(label_keys) - 1)
    return np.bincount(indices[label_keys[indices] == keys], minlength=len(label_keys))


def _rounded(value: float) -> float:
    return round(value, _DIGITS)


def label_words(examples: Sequence[Example]) -> dict[str, tuple[str, ...]]:
    """Return the label words of each class by mutual information over rows: log p(word, class) / (p(word) p(class)).

    A word must reach half of the information of a word that occurs in one class alone; otherwise small classes, which
    have few words of their own, would collect the most common words of the language. Ties go to the word in more rows,
    then to the alphabet. Rows whose label is not a class name are ignored.

    >>> rows = [Example("", f"{word} the", label) for word, label in (("goal", "sport"), ("gene", "biology"))]
    >>> label_words(rows * 5)
    {'sport': ('goal',), 'biology': ('gene',)}
    """
    rows = Counter(example.label for example in examples if isinstance(example.label, str))
    inside: dict[str, Counter[str]] = {str(label): Counter() for label in rows}
    everywhere: Counter[str] = Counter()
    for example in examples:
        if isinstance(example.label, str):
            words = {*words_of(example.text), *words_of(example.text_pair or "")}
            inside[example.label].update(words)
            everywhere.update(words)
    return {label: _class_words(counts, everywhere, rows[label], rows.total()) for label, counts in inside.items()}


def _class_words(counts: Counter[str], everywhere: Counter[str], rows: int, total: int) -> tuple[str, ...]:
    """Return the label words of a class; `counts` and `rows` are those of the class."""

    def is_label_word(word: str) -> bool:
        inside, anywhere = counts[word], everywhere[word]
        above_chance = inside * total > anywhere * rows
        # Half of the largest logarithm is a square root: (inside / anywhere / share) ** 2 >= 1 / share, in integers.
        return inside >= LEAST_ROWS and above_chance and inside**2 * total >= anywhere**2 * rows

    def sort_key(word: str) -> tuple[float, int, str]:
        return -log(counts[word] / everywhere[word] / (rows / total)), -counts[word], word

    return tuple(sorted(filter(is_label_word, counts), key=sort_key)[:MOST_WORDS])
