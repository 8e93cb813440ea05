"""What a weighting is: the rule that says which objectives run at a step, and with which weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Turn:
    """One objective's part in a step; `step` counts this objective's own turns, so it reads its data in order."""

    objective: str
    weight: float
    step: int


class Weighting(Protocol):
    """A rule over named objectives."""

    def turns(self, step: int) -> tuple[Turn, ...]:
        """The objectives that run at this step; a pure function of the step."""
        ...
