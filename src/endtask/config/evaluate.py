"""Settings of the scores."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from endtask.config.section import Positive, Section

Metric = Literal[
    "auto",
    "accuracy",
    "micro_f1",
    "macro_f1",
    "f1",
    "accuracy_f1",
    "matthews",
    "pearson",
    "spearman",
    "pearson_spearman",
    "r2",
    "span_f1",
    "strict_span_f1",
    "exact_match",
]


class EvaluateSettings(Section):
    """How predictions are scored."""

    metric: Metric = Field(
        "auto",
        description="the score that decides on dev and is reported on test; auto: macro_f1 for classes, pearson for "
        "scores, micro_f1 for several labels, span_f1 for tags (accuracy where they make no spans)",
    )
    positive_label: str | None = Field(
        None, description="the class that `f1` is about; unset: the last of the two that does not begin with `not`"
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] | Literal["tuned"] = Field(
        0.5, description="for kind `labels`: the least probability of a label that is given; tuned: the best on dev"
    )
    batch_size: Positive = Field(64, description="texts per forward pass; changes speed only")
