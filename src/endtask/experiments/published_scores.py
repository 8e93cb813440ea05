"""Scores and training cost of the papers' models, for the chart of a comparison on one of their tasks.

TLM: Yao et al. (2021), Table 2; ISS: Wang et al. (2023), Table 3. FLOPs are those of pre-training as the papers count
them, 6 x parameters x tokens. BERT and RoBERTa are the baselines of these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from endtask.experiments.trial_results import EvaluationSet


@dataclass(frozen=True)
class PublishedScore:
    """A model's test score between 0 and 1 on a task, and the FLOPs of its pre-training."""

    model: str
    score: float
    flops: float


@dataclass(frozen=True)
class _TestSet:
    """What a test set is recognised by: its rows, its number of labels, and its metric."""

    rows: int
    labels: int
    metric: str


# Helpfulness and IMDB are left out: their test sets have the same numbers of rows and labels.
_TEST_SETS = {
    "agnews": _TestSet(7600, 4, "macro_f1"),
    "hyperpartisan": _TestSet(65, 2, "macro_f1"),
    "citation_intent": _TestSet(139, 6, "macro_f1"),  # ACL-ARC
    "sciie": _TestSet(974, 7, "macro_f1"),  # SciERC
    "chemprot": _TestSet(3469, 13, "micro_f1"),
    "rct": _TestSet(30135, 5, "micro_f1"),
}
_MODELS: dict[str, tuple[float, tuple[float, ...]]] = {
    "BERT-base": (2.79e19, (93.50, 91.93, 69.45, 80.98, 81.94, 87.00)),
    "RoBERTa-base": (1.54e21, (94.02, 93.53, 68.34, 81.35, 82.60, 87.23)),
    "TLM small": (2.74e18, (93.74, 93.53, 69.84, 80.51, 81.99, 86.99)),
    "TLM large": (7.59e19, (94.34, 95.16, 72.19, 83.29, 85.12, 87.50)),
    "ISS small": (1.82e18, (93.78, 93.53, 72.41, 80.56, 81.71, 86.99)),
}
"""By model: FLOPs of pre-training, and the scores in the order of the test sets."""
_SAME_FOR_ONE_LABEL = ("accuracy", "micro_f1")


def published_scores(rows: EvaluationSet) -> list[PublishedScore]:
    """Return the papers' scores on a test set with these rows, labels and metric; empty for other sets and for dev."""
    if rows.split != "test":
        return []
    metric = "micro_f1" if rows.metric in _SAME_FOR_ONE_LABEL else rows.metric
    found = _TestSet(len(rows.ids), len(rows.labels), metric)
    return next((scores_on(task) for task, known in _TEST_SETS.items() if known == found), [])


def scores_on(task: str) -> list[PublishedScore]:
    """Return the papers' scores on a task of theirs.

    >>> [round(100 * paper.score, 1) for paper in scores_on("chemprot") if paper.model == "BERT-base"]
    [81.9]
    """
    number = list(_TEST_SETS).index(task)
    return [PublishedScore(model, scores[number] / 100, flops) for model, (flops, scores) in _MODELS.items()]
