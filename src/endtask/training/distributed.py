"""Training by several processes: each computes the losses of its part of a batch, and torch sums the gradients.

The parts of a batch are weighted so that their losses add up to the loss of the whole batch (encoders/batch_parts.py).
So the sums of losses and gradients are those of one process, and every process makes the same step.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from endtask.config import Settings
from endtask.encoders.batch import TextBatch
from endtask.encoders.batch_parts import own_part
from endtask.encoders.device_context import device_named
from endtask.errors import InputError, TrainingError
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
        if isinstance(self._module, nn.parallel.DistributedDataParallel) and not is_last:
            skipping: AbstractContextManager[None] = self._module.no_sync()
            return skipping
        return nullcontext()


def is_sharded(settings: Settings, processes: Processes) -> bool:
    """Return whether every process holds a part of the weights only (FSDP), by default for the size `large` on GPUs."""
    if processes.count == 1 or settings.distributed != "auto":
        return processes.count > 1 and settings.distributed == "fsdp"
    has_whole_gradients = _needs_whole_weights(settings) is None
    return settings.model.size == "large" and has_whole_gradients and device_named(settings.device).type == "cuda"


def check_distributed(settings: Settings) -> None:
    """Raise `InputError` for settings that need all weights in every process."""
    key = _needs_whole_weights(settings)
    if settings.distributed == "fsdp" and key is not None and not settings.skip_pretraining:
        raise InputError(f"{key} needs all weights in every process", key="distributed", hint="use distributed=ddp")


def _needs_whole_weights(settings: Settings) -> str | None:
    """Return the setting of a method that reads or computes gradients by itself."""
    if settings.pretrain.weighting.part.learns_weights:
        return "pretrain.weighting.name"
    return "pretrain.reselect.every" if settings.pretrain.reselect.every is not None else None


def shard(network: Any) -> None:
    """Divide weights, gradients and the optimizer's state among the processes by FSDP2, layer by layer."""
    if _MODULE in vars(network):
        return
    from torch.distributed.fsdp import fully_shard

    losses = _Losses(network)
    layers = next(part for part in network.encoder.modules() if isinstance(part, nn.ModuleList))
    for layer in layers:
        fully_shard(layer)
    vars(network)[_MODULE] = fully_shard(losses)


def distribution(network: nn.Module, processes: Processes) -> dict[str, Any]:
    """Return the number of processes and how they share the weights, for the manifest; empty for one process."""
    if processes.count == 1:
        return {}
    is_divided = any(hasattr(weight, "full_tensor") for weight in network.parameters())
    return {"processes": processes.count, "distributed": "fsdp" if is_divided else "ddp"}


@contextmanager
def gathered(network: nn.Module) -> Iterator[None]:
    """Give every process the weights outside the layers in the block; layers gather theirs when they are called."""
    module = vars(network).get(_MODULE)
    if module is None or isinstance(module, nn.parallel.DistributedDataParallel):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()


_MODULE = "_module_of_losses"


def _data_parallel(network: nn.Module) -> nn.Module:
    """Return the wrapped network; a second wrapper of the same weights would exchange each gradient twice."""
    attributes = vars(network)  # not as a submodule, which would change the names of the weights
    if _MODULE not in attributes:
        # The objectives of a step read different heads.
        wrapper = nn.parallel.DistributedDataParallel
        is_new = "forward_sync_buffers" in inspect.signature(wrapper).parameters  # replaces `broadcast_buffers`
        buffers = {"forward_sync_buffers" if is_new else "broadcast_buffers": False}
        attributes[_MODULE] = wrapper(_Losses(network), find_unused_parameters=True, **buffers)  # type: ignore[arg-type]
    wrapped: nn.Module = attributes[_MODULE]
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
