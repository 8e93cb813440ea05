"""The paper's pathology: through its own head the task looks better than it is (TARTAN, section 5.4).

The auxiliary objective is a twin of the task, the same rule on other points through a head of its own, so that nothing
speaks for one of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from endtask.training.loop import train

from .points import PlainSteps, PointClasses, PointNetwork, Points, draw, point_phase

STEPS, ETA, NAMES = 150, 0.2, ("task", "twin")


class Twin(PointClasses):
    """The task's rule on other points."""

    def batch(self, step: int) -> Points:
        return draw("task", 5000 + step)


def end_weight(seed: int, **changes: Any) -> float:
    """The task's weight after the last step."""
    network = PointNetwork(NAMES, seed=seed, hidden=32)
    phase = point_phase(NAMES, steps=STEPS, network=network, learning_rate=ETA, **changes)
    phase = replace(phase, objectives={**phase.objectives, "twin": Twin("twin")})
    weights = [record.losses["weight/task"] for record in train(phase, PlainSteps(network, 0.1))]  # type: ignore[arg-type]
    return weights[-1].item()


@pytest.mark.long
@pytest.mark.slow
def test_only_the_same_head_drives_the_task_to_all_of_the_weight() -> None:
    seed = 0
    assert end_weight(seed, head="task") > 0.9
    assert end_weight(seed, head="closed_form") < 0.7
    assert end_weight(seed, head="adamw") < 0.7
