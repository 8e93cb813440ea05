"""One objective after the other, each with a learning-rate schedule of its own (DAPT, then TAPT)."""

from __future__ import annotations

from collections.abc import Sequence

from endtask.weighting.base import Rule, Weighting, WeightingContext, weightings


@weightings.register("sequence")
class SequenceWeighting(Weighting):
    """one objective after the other, each with a schedule of its own (DAPT, then TAPT)"""

    sequential = True

    def trained_last(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the last objective."""
        return names[-1:]

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return a rule with the same shares of steps; training/pretrain.py splits it into phases."""
        from endtask.weighting.alternate import Alternate

        return Alternate(*run.objectives, weights=run.weights)


def split_steps(steps: int, weights: Sequence[float]) -> list[int]:
    """Return the steps of each objective in proportion to the weights, at least one.

    >>> split_steps(10, [3, 1])
    [8, 2]
    """
    ends = [round(steps * sum(weights[: number + 1]) / sum(weights)) for number in range(len(weights))]
    return [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]
