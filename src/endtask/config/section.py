"""What every group of settings has in common."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]
PositiveNumber = Annotated[float, Field(gt=0)]


def _steps_or_share(value: float) -> float:
    if value >= 1 and value % 1:
        raise ValueError(f"{value} is neither a whole number of steps nor a share of them below 1")
    return int(value) if value >= 1 else value


Warmup = Annotated[float, Field(ge=0), AfterValidator(_steps_or_share)]
"""A number of steps, or below 1 a share of all steps, as Hugging Face's `warmup_steps`."""


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def infinity_in_words(value: Any) -> Any:
    """YAML's own infinity, `.inf`, as the word that stands for it among the values of a setting.

    >>> infinity_in_words(float("inf")), infinity_in_words(19)
    ('inf', 19)
    """
    return "inf" if isinstance(value, float) and value == math.inf else value
