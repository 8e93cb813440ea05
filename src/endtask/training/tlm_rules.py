"""TLM's choices for the user's own task, read off the paper's eight (Table B.1)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from endtask.config import Settings

Scale = Literal["small", "medium", "large"]

_GROUPS = (1_000, 5_000, 100_001)
"""Where groups of tasks part by their train rows: the paper's own bounds for K, under 5,000 and over 100,000, and one
between its smallest task (515 rows), which asks for the task more often at every scale, and the next (1,688 rows)."""

_RHO1: dict[Scale, tuple[int, int, int, int]] = {
    "small": (99, 999, 19, 1),
    "medium": (99, 999, 99, 3),
    "large": (499, 1999, 99, 7),
}
"""The median of each group's rows, smallest tasks first."""

_MEDIUM_STEPS = 200_000


def automatic_rho1(examples: int, scale: Scale = "small") -> int:
    """Corpus batches per task batch: few labels are shown rarely, lest they be learned by heart.

    Right for 21 of the 24 rows of Table B.1, and one step of the paper's grid away from the other three.

    >>> [automatic_rho1(examples) for examples in (500, 3000, 20_000, 180_000)]
    [99, 999, 19, 1]
    """
    return _RHO1[scale][bisect_right(_GROUPS, examples)]


def scale_of(settings: Settings) -> Scale:
    """Which of TLM's scales a run is nearest to; the paper's small and medium differ in their steps alone.

    >>> from endtask.config import load_settings
    >>> [scale_of(load_settings(preset=name)) for name in ("laptop", "tlm-medium", "tlm-large")]
    ['small', 'medium', 'large']
    """
    if settings.retrieve.large_scale:
        return "large"
    long = settings.budget.unit == "steps" and settings.budget.amount >= _MEDIUM_STEPS
    return "medium" if long else "small"
