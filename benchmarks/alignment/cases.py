"""The two case studies: what a body's pre-trained heads say about a few texts, and what 200 labels make of it.

The texts are of the kind that the paper shows: a query with words that a link may cover and a concept may not, and a
snippet beside the initials of an entity, initials of words that are none, and letters that are no initials at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.alignment.cells import USUAL, Effort, plan_of
from endtask.experiments.few_shot.few_shot_scores import FewShotResult
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from endtask.io.tables import Row

Tree = dict[str, Any]
QUERIES: tuple[tuple[str, str], ...] = (
    ("who wrote the second harry potter", "harry potter"),
    ("minecraft 50% discount", "minecraft"),
)
"""Queries, and the concept in each."""
SNIPPET = "every month the bank of england sets an interest rate. its votes are published two weeks later."
LETTERS: dict[str, str] = {"BOE": "1", "IVA": "0", "BSE": "0"}
"""Initials of an entity; initials of words that are none; no initials."""
UNTOUCHED = 1e-12
"""A rate that leaves a kept head as pre-training made it."""
LABELS = 200


def case_tasks() -> dict[str, list[Row]]:
    """The test rows of each task's cases."""
    queries = [{"tokens": query.split(), "tags": tags_of(query, concept)} for query, concept in QUERIES]
    pairs = [
        {"text": letters, "text_pair": SNIPPET, "label": label, "doc": "case"} for letters, label in LETTERS.items()
    ]
    return {"ct": queries, "ad": pairs}


def tags_of(query: str, concept: str) -> list[str]:
    """The tags of a query with one concept.

    >>> tags_of("who wrote harry potter", "harry potter"), tags_of("minecraft discount", "minecraft")
    (['none', 'none', 'start', 'end'], ['both', 'none'])
    """
    words, inside = query.split(), concept.split()
    start = next(n for n in range(len(words)) if words[n : n + len(inside)] == inside)
    tags = ["none"] * len(words)
    tags[start], tags[start + len(inside) - 1] = ("both", "both") if len(inside) == 1 else ("start", "end")
    return tags


def case_plans(task: str, effort: Effort = USUAL) -> dict[str, FewShotSpec]:
    """As pre-training left the head, and after learning; cases are test rows, so labels are drawn from train."""
    learned = plan_of(task, "head", "keep", FewShotSpec().learning_rates_of("head")[0], (LABELS,), effort)
    by_draws = learned.model_copy(update={"folds": None})
    still = {"learning_rates": (UNTOUCHED,), "samples": 1, "seeds": (0,), "epochs": 1}
    return {"pre-training": by_draws.model_copy(update=still), "fine-tuning": by_draws}


def case_rows(task: str, stage: str, results: Sequence[FewShotResult], labels: Sequence[str]) -> list[Tree]:
    """Of queries what the first run marked; of letters the mean probability of the positive class."""
    if task == "ct":
        answers = [[labels[tag] for tag in row] for row in results[0].predictions]
        return [
            {"text": query, "stage": stage, "shown": f"`{marked(query.split(), tags)}`"}
            for (query, _), tags in zip(QUERIES, answers, strict=True)
        ]
    return [
        {"text": letters, "stage": stage, "shown": f"{_positive(label, [one.losses[place] for one in results]):.2f}"}
        for place, (letters, label) in enumerate(LETTERS.items())
    ]


def _positive(label: str, surprises: Sequence[float]) -> float:
    right = fmean(math.exp(-surprise) for surprise in surprises)
    return right if label == "1" else 1 - right


def marked(words: Sequence[str], tags: Sequence[str]) -> str:
    """Words with the bounds that were found; they need not fit together.

    >>> marked(["the", "harry", "potter"], ["start", "both", "end"])
    '[the [harry] potter]'
    """
    starts, ends = ("start", "both"), ("end", "both")
    return " ".join(
        f"{'[' if tag in starts else ''}{word}{']' if tag in ends else ''}"
        for word, tag in zip(words, tags, strict=True)
    )
