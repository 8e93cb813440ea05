"""The automatic rho1 for a user's task against the paper's eight tasks."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import load_settings
from endtask.weighting.interleave import Scale, automatic_rho1, scale_of

GRID = [1, 3, 7, 19, 99, 499, 999, 1999]
TRAIN_ROWS = [115_000, 515, 115_251, 20_000, 1688, 3219, 4169, 180_040]
RHO1: dict[Scale, list[int]] = {
    "small": [1, 99, 1, 19, 999, 999, 999, 3],
    "medium": [3, 99, 1, 99, 999, 999, 999, 3],
    "large": [3, 499, 7, 99, 1999, 1999, 1999, 7],
}


@pytest.mark.parametrize("scale", RHO1)
def test_the_rule_is_the_median_of_the_tasks_of_like_size(scale: Scale) -> None:
    def group(fewest: int, most: int) -> float:
        return median(rho1 for rows, rho1 in zip(TRAIN_ROWS, RHO1[scale], strict=True) if fewest <= rows <= most)

    assert automatic_rho1(999, scale) == group(0, 999)
    assert automatic_rho1(1000, scale) == automatic_rho1(4999, scale) == group(1000, 4999)
    assert automatic_rho1(5000, scale) == automatic_rho1(100_000, scale) == group(5000, 100_000)
    assert automatic_rho1(100_001, scale) == group(100_001, 10**9)


def test_the_rule_is_never_more_than_a_step_of_the_grid_away_from_the_table() -> None:
    steps = [
        abs(GRID.index(automatic_rho1(rows, scale)) - GRID.index(rho1))
        for scale, row in RHO1.items()
        for rows, rho1 in zip(TRAIN_ROWS, row, strict=True)
    ]
    assert (steps.count(0), steps.count(1), len(steps)) == (21, 3, 24)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9))
def test_larger_scales_never_ask_for_the_task_more_often(rows: int) -> None:
    small, medium, large = (automatic_rho1(rows, scale) for scale in RHO1)
    assert small <= medium <= large
    assert {small, medium, large} <= set(GRID)


@pytest.mark.parametrize(
    ("preset", "overrides", "scale"),
    [
        ("tlm-small", [], "small"),
        ("tlm-medium", [], "medium"),
        ("tlm-large", [], "large"),
        ("tlm-large", ["budget=10min"], "large"),
        ("tlm-medium", ["budget=10h"], "small"),
        ("tlm-medium", ["budget=2000steps"], "small"),
        ("laptop", [], "small"),
        ("laptop", ["retrieve.top_k=auto_large"], "large"),
    ],
)
def test_the_scale_of_a_run(preset: str, overrides: list[str], scale: Scale) -> None:
    assert scale_of(load_settings(preset=preset, overrides=overrides)) == scale
