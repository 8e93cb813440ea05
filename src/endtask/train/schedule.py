"""The learning rate of a step: linear warm-up, then linear decay to zero at the last step."""

from __future__ import annotations


def learning_rate_at(step: int, *, steps: int, warmup_fraction: float, peak: float) -> float:
    """The rate used by step `step` of `steps`, counted from 0.

    >>> [round(learning_rate_at(s, steps=4, warmup_fraction=0.5, peak=1.0), 2) for s in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    warmup = int(steps * warmup_fraction)
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (steps - step) / max(1, steps - warmup)
