"""The name of the random generator in SciPy's resampling: `rng`, before 1.15 `random_state`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np


def seeded(function: Callable[..., Any]) -> dict[str, Any]:
    """The argument that makes a function draw the same every time."""
    name = "rng" if "rng" in inspect.signature(function).parameters else "random_state"
    return {name: np.random.default_rng(0)}
