"""Settings of the scores."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from endtask.config.part_section import PartSection
from endtask.registry import Registry, metrics


class EvaluateSettings(PartSection):
    """How predictions are scored."""

    registry: ClassVar[Registry[Any]] = metrics
    part_key: ClassVar[str] = "metric"

    metric: str = Field(
        "auto",
        description="the score that decides on dev and is reported on test; auto: macro_f1 for classes, pearson for "
        "numbers, micro_f1 for label sets, span_f1 for tags (accuracy where they make no spans); or a plug-in's",
    )
    positive_label: str | None = Field(
        None, description="the class that `f1` is about; unset: the last of the two that does not begin with `not`"
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] | Literal["tuned"] = Field(
        0.5, description="for multilabel: the least probability of a label that is given; tuned: the best on dev"
    )

    @field_validator("metric")
    @classmethod
    def metric_can_decide(cls, metric: str) -> str:
        part = metrics.get(metric)
        if not (part.decides and part.higher_is_better):
            raise ValueError(f"{metric} is reported, but cannot choose between models")
        return metric
