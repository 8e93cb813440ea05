"""A plug-in that runs other settings files first, up to pre-training, in the processes that torchrun has started.

The variable MORE_RUNS has their paths; a run of `FILE:stop` ends by an error after its first checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import endtask
from endtask.processes import is_started_by_torchrun
from endtask.training.phase_runner import _Trainer


class Stopped(Exception):
    pass


@contextmanager
def stopped_at_checkpoint(stops: bool) -> Iterator[None]:
    """Save the first checkpoint of the block as usual, and then leave the block."""
    save = _Trainer._save

    def save_and_stop(trainer: _Trainer, step: int, state: Any) -> None:
        save(trainer, step, state)
        raise Stopped

    if stops:
        _Trainer._save = save_and_stop  # type: ignore[method-assign]
    try:
        with suppress(Stopped):
            yield
    finally:
        _Trainer._save = save  # type: ignore[method-assign]


def pretrain(argument: str) -> None:
    file, _, stops = argument.partition(":")
    with stopped_at_checkpoint(bool(stops)):
        endtask.run(json.loads(Path(file).read_text(encoding="utf-8")), until="pretrain")


if is_started_by_torchrun():
    for argument in os.environ["MORE_RUNS"].split():
        pretrain(argument)
