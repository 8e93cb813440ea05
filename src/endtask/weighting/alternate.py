"""One objective per step, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from endtask.weighting.base import Rule, ScheduledObjective, Weighting, WeightingContext, used_weights, weightings

_LARGEST_DENOMINATOR = 1_000_000


@weightings.register("alternate")
class AlternateWeighting(Weighting):
    """one objective per step, in turn"""

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule."""
        return Alternate(*run.objectives, weights=run.weights)


class Alternate(Rule):
    """Objectives alternate, equally often or in proportion to their weights, as evenly spread as whole steps allow.

    XLM, the code of objective alignment, trains this way. The last objective has a step whenever its share
    of all steps passes a whole number; the others divide the rest in the same way. Shares are fractions of whole
    numbers, so the objective of any step is exact and known without the steps before it.

    >>> [item.objective for step in range(4) for item in Alternate("mlm", "links", "acronyms").schedule(step)]
    ['mlm', 'links', 'acronyms', 'mlm']
    >>> [item.objective for step in range(4) for item in Alternate("mlm", "links", weights=(3, 1)).schedule(step)]
    ['mlm', 'mlm', 'mlm', 'links']
    """

    def __init__(self, *objectives: str, weights: Sequence[float] | None = None) -> None:
        used = used_weights(objectives, weights)
        self._objectives = [name for name, _ in used]
        exact = [Fraction(weight).limit_denominator(_LARGEST_DENOMINATOR) for _, weight in used]
        # The share of each objective among itself and the objectives before it.
        self._shares = [weight / sum(exact[: number + 1]) for number, weight in enumerate(exact)]

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return one objective, always with weight 1."""
        left = step  # previous steps of the objectives that the loop has not yet passed
        for name, share in reversed(list(zip(self._objectives, self._shares, strict=True))):
            before, after = int(left * share), int((left + 1) * share)
            if after > before:
                return (ScheduledObjective(name, 1.0, before),)
            left -= before
        raise AssertionError
