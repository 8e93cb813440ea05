"""Settings of re-selection: which of the selected texts stage 1 reads, decided anew while it trains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from endtask.settings.section import Positive, Section


class ReselectSettings(Section):
    """Every so many steps, read from then on what now helps the task most (beyond the papers)."""

    every: Positive | None = Field(
        None, description="steps from one re-selection to the next, the first after so many; unset: never"
    )
    reservoir: Positive | None = Field(
        4096, description="texts of the selection that are drawn, anew each time, and scored; null: all"
    )
    keep: float = Field(
        0.5, gt=0, le=1, description="share of them, the highest scores, that is read until the next time"
    )
    targets: Literal["folds", "dev"] = Field(
        "folds",
        description="whose loss is to fall: of a part of train that its objectives leave out meanwhile, or of dev",
    )
    folds: int = Field(
        10, ge=2, description="parts of train that are left out in turn; with `weighting: meta` by folds, its own parts"
    )
    masks: Positive = Field(2, description="masks of a text over which its gradient is averaged")
    mask_probability: float | None = Field(
        0.5, gt=0, lt=1, description="share of its tokens that each of them hides; unset: what the objective hides"
    )
    most_targets: Positive = Field(256, description="draw so many of more target rows")
    measure: Literal["dot", "cosine"] = Field("cosine", description="how two gradients are compared")
    top_targets: Positive = Field(10, description="how many of a text's best scores are averaged")
