"""A plug-in that ends the second process by SIGKILL at the fifth step of pre-training, in its first life."""

from __future__ import annotations

import os
import signal
from itertools import count
from typing import Any

from endtask.training.optimizer import Optimizer

steps, step = count(1), Optimizer.step


def killed_at_the_fifth(optimizer: Optimizer, factor: float) -> Any:
    is_first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
    if next(steps) == 5 and is_first_life and os.environ.get("RANK") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return step(optimizer, factor)


Optimizer.step = killed_at_the_fifth  # type: ignore[method-assign]
