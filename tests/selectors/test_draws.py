"""Random numbers by id."""

from __future__ import annotations

import numpy as np

from endtask.seeds import uniform
from endtask.selectors.dsir import gumbel_noise


def test_both_ends_are_excluded() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    low, high = uniform(ends)
    assert 0 < low < high < 1
    assert np.isfinite(gumbel_noise(ends)).all()
