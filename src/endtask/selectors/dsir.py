"""Importance resampling by hashed n-grams (DSIR, Xie et al. 2023): select texts distributed like the task's.

A text weighs p_task(text) / p_retrieved(text) under two bags of hashed words and word pairs; passages are drawn without
replacement in proportion to their weights. Short texts are drawn like any other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.seeds import uniform
from endtask.selectors.base import Candidates, Order, Ranking, RunContext, Selector, by_score, ranks_of, selectors
from endtask.selectors.hashing import (
    BUCKETS,
    Counts,
    bucket_counts,
    example_keys,
    table_counts,
    table_draws,
    table_sums,
)


@selectors.register("dsir")
class Dsir(Selector):
    """drawn by the importance of hashed n-grams (Xie et al., 2023)"""

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by a draw without replacement; the score is the logarithm of the importance weight."""
        weights = log_ratios(bucket_counts(example_keys(run.examples)), table_counts(run.table, "retrieved passages"))
        score = table_sums(run.table, weights, "retrieved passages by importance")
        noise = gumbel_noise(table_draws(run.table, run.seed, "dsir"))
        order = by_score(score + noise, candidates)  # Gumbel top-k: the same as drawing without replacement
        draws = ranks_of(order)

        def reasons(indices: Order) -> list[str]:
            rows = zip(score[indices].tolist(), draws[indices].tolist(), strict=True)
            return [f"dsir: log importance {value:+.1f}, draw {draw} of seed {run.seed}" for value, draw in rows]

        return Ranking(order, score, reasons)


def log_ratios(task: Counts, raw: Counts) -> NDArray[np.float64]:
    """Return the logarithm of p_task / p_raw of every bucket.

    `raw` is smoothed by one count per bucket. The small task is smoothed by as many n-grams as there are buckets,
    distributed as in `raw`: n-grams that the task lacks then count against a text, within bounds, and the fewer words
    the task has, the closer all weights are to zero.
    """
    p_raw = (raw + 1.0) / (raw.sum() + BUCKETS)
    p_task = (task + BUCKETS * p_raw) / (task.sum() + BUCKETS)
    ratios: NDArray[np.float64] = np.log(p_task) - np.log(p_raw)
    return ratios


def gumbel_noise(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Transform random 64-bit numbers into Gumbel noise."""
    return -np.log(-np.log(uniform(numbers)))
