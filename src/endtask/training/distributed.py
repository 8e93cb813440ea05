"""Training by several processes: each computes the losses of its part of a batch, and torch sums the gradients.

The parts of a batch are weighted so that their losses add up to the loss of the whole batch (encoders/batch_parts.py).
So the sums of losses and gradients are those of one process, and every process makes the same step.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from endtask.encoders.batch import TextBatch
from endtask.encoders.batch_parts import own_part
from endtask.errors import TrainingError
from endtask.io.stage_folder import StageFolder
from endtask.objectives.base import Batch, BuiltObjective, Loss
from endtask.processes import Processes, current_processes


def part_for(processes: Processes, batch: Batch, network: Any) -> Batch:
    """Return the part of a batch that this process trains on, with one process the batch."""
    if processes.count == 1:
        return batch
    if not isinstance(batch, TextBatch):
        raise TrainingError(f"batches of {type(batch).__name__} cannot be divided among processes")
    return own_part(batch, network, processes)


class _Losses(nn.Module):
    """Computes a loss in `forward`, as torch's wrappers of modules need."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, objective: BuiltObjective, batch: Batch) -> Loss:
        loss = objective.loss(self.network, batch)
        return Loss(loss.total, {name: value.detach() for name, value in loss.parts.items()})


class ParallelLosses:
    """Computes the losses of a network; after a backward pass gradients are those of all processes.

    Gradients are means over the processes (`DistributedDataParallel`), so that losses are multiplied by `scale`.
    """

    def __init__(self, network: Any, processes: Processes) -> None:
        self._network, self._module = network, None if processes.count == 1 else _data_parallel(network)
        self.scale = float(processes.count)

    def __call__(self, objective: BuiltObjective, batch: Batch) -> Loss:
        """Return the loss of a batch, or of this process's part of one."""
        if self._module is None:
            return objective.loss(self._network, batch)
        loss: Loss = self._module(objective, batch)
        return loss

    def reducing(self, is_last: bool) -> AbstractContextManager[None]:
        """Return a context for both passes of a batch; gradients are exchanged after an objective's last batch only."""
        if self._module is None or is_last:
            return nullcontext()
        skipping: AbstractContextManager[None] = self._module.no_sync()
        return skipping


_MODULE = "_data_parallel"


def _data_parallel(network: nn.Module) -> nn.parallel.DistributedDataParallel:
    """Return the wrapped network; a second wrapper of the same weights would exchange each gradient twice."""
    attributes = vars(network)  # not as a submodule, which would change the names of the weights
    if _MODULE not in attributes:
        # The objectives of a step read different heads.
        wrapper = nn.parallel.DistributedDataParallel
        is_new = "forward_sync_buffers" in inspect.signature(wrapper).parameters  # replaces `broadcast_buffers`
        buffers = {"forward_sync_buffers" if is_new else "broadcast_buffers": False}
        attributes[_MODULE] = wrapper(_Losses(network), find_unused_parameters=True, **buffers)  # type: ignore[arg-type]
    wrapped: nn.parallel.DistributedDataParallel = attributes[_MODULE]
    return wrapped


def last_of_objective(names: list[str]) -> Iterator[bool]:
    """Yield for each batch of a step, by the name of its objective, whether it is the objective's last.

    >>> list(last_of_objective(["mlm", "mlm", "task"]))
    [False, True, True]
    """
    for number, name in enumerate(names):
        yield name not in names[number + 1 :]


def start_together(stage: StageFolder) -> Path:
    """Start a stage in every process, and return its folder; the first process makes it."""
    processes = current_processes()
    folder = stage.start() if processes.is_first else None
    processes.wait()
    return stage.follow() if folder is None else folder
