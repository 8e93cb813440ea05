"""Settings of re-selection: which of the selected texts pre-training reads, decided anew while it trains."""

from __future__ import annotations

from pydantic import Field

from endtask.config.section import Positive, Section

RESELECTION_FOLDS = 10
"""Parts of train that are left out in turn and judge; with `weighting: meta` by folds, its own parts do."""


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
