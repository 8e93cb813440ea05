"""How far two selections agree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def overlap(ours: NDArray[Any], theirs: NDArray[Any]) -> dict[str, float]:
    """Passages in both, as a share of `ours` and of all in either (Jaccard); each passage stands once.

    >>> overlap(np.array([1, 2]), np.array([2, 3, 4]))
    {'share': 0.5, 'jaccard': 0.25}
    """
    both = len(np.intersect1d(ours, theirs, assume_unique=True))
    either = len(ours) + len(theirs) - both
    return {"share": round(both / max(len(ours), 1), 6), "jaccard": round(both / max(either, 1), 6)}
