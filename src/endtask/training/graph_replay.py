"""Forward and backward pass of a batch: eagerly, or on a GPU by replaying a CUDA graph.

With a small network and a small batch a GPU finishes each kernel before Python launches the next. A CUDA graph holds
all kernels of both passes; one call launches them on the current contents of the recorded batch.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from endtask.encoders.device_context import RECORDING, DeviceContext
from endtask.objectives.base import Batch, BuiltObjective, Loss
from endtask.progress import say
from endtask.training.distributed import ParallelLosses

_END_OF_POOL = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")  # its names in new and old torch


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Capture the kernels of this block in the graph instead of running them.

    Each graph has its own memory pool: graphs may share one only if they are always replayed in the same order. Other
    threads may prepare and pin batches meanwhile.
    """
    stream, pool = torch.cuda.current_stream(device), torch.cuda.graph_pool_handle()
    with RECORDING:
        try:
            with _garbage_collected_before(), torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
                yield
        except RuntimeError:
            _undo(device, stream, pool)
            raise


@contextmanager
def _garbage_collected_before() -> Iterator[None]:
    """Collect garbage before the block and not in it: destroying a graph of an earlier training breaks a capture.

    Torch did this itself until 2.8.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _undo(device: torch.device, stream: Any, pool: Any) -> None:
    """Leave the stream, the memory pool and the random generator of a failed capture, which torch does not do.

    Otherwise training would continue in the stream of the capture, and torch (without pytorch#180395) would act as if
    it still captured: it would free no memory that two streams have used, and trainings would end with dozens of
    unused gigabytes. Memory of the capture itself stays allocated until the process ends (without pytorch#190348):
    releasing it twice would end the process, and nothing shows whether torch releases it.
    """
    number = torch.cuda._utils._get_device_index(device, optional=True)
    torch.cuda.set_stream(stream)
    end = next((getattr(torch._C, name) for name in _END_OF_POOL if hasattr(torch._C, name)), None)
    if end is not None:
        with suppress(RuntimeError):  # the pool has ended already
            end(number, pool)
    generator = torch.cuda.default_generators[number]
    seed = generator.initial_seed()
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())  # a state that belongs to no graph
    generator.manual_seed(seed)


_EAGER_BATCHES = 3
"""Batches that run eagerly before a capture: kernels are compiled and chosen, and libraries allocate their memory."""

_MAX_GRAPHS = 16
"""Each graph takes memory; a phase whose batches have unexpectedly many forms must not take all of it."""
_MOST_FLOPS = 2e12
"""Weights times tokens of a batch from which Python keeps up with the GPU, such as 110 M times 32,768."""


@runtime_checkable
class FormedBatch(Protocol):
    """A batch that can overwrite another batch of the same form."""

    @property
    def form(self) -> Hashable:
        """Everything that the kernels depend on: shapes, types, and values that are not tensors."""
        ...

    def copy_into(self, other: Self) -> None:
        """Copy this batch's tensors into the other's, which are on a device."""
        ...


@dataclass(frozen=True)
class _Recording:
    """A graph and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Any
    weight: Tensor  # ()
    parts: dict[str, Tensor]
    gradients: list[tuple[nn.Parameter, Tensor]]


class Backward:
    """Adds the gradient of a weighted loss to the gradients of the weights, and returns the parts of the loss.

    Objectives with `replayable` are recorded, in batches of fixed shape, with one graph per form. Dropout is the same
    in a replay, which draws from the seed of its step.
    """

    def __init__(self, network: Any, context: DeviceContext) -> None:
        self._network, self._context = network, context
        self._losses = ParallelLosses(network, context.processes)
        is_alone = context.processes.count == 1  # a recording has no exchange of gradients
        self._records = is_alone and context.device.type == "cuda" and getattr(network, "fixed_shapes", False)
        self._size = sum(weight.numel() for weight in network.parameters())
        self._batches_seen: Counter[Hashable] = Counter()
        self._recordings: dict[Hashable, _Recording] = {}

    def __call__(
        self, objective: BuiltObjective, batch: Batch, weight: float, *, is_last: bool = True
    ) -> dict[str, Tensor]:
        """Run both passes of a batch on the host, and return the parts of the loss.

        Gradients of several processes are complete after the objective's last batch.
        """
        if not (self._is_recorded(objective, batch) and isinstance(batch, FormedBatch)):
            with self._losses.reducing(is_last):
                return self._compute(objective, batch, weight * self._losses.scale)
        key = (objective.name, batch.form)
        if key not in self._recordings:
            self._batches_seen[key] += 1
            if self._batches_seen[key] <= _EAGER_BATCHES or len(self._recordings) == _MAX_GRAPHS:
                return self._compute(objective, batch, weight)
            try:
                self._recordings[key] = self._record(objective, batch)
            except RuntimeError as error:  # also if out of memory: a graph needs more than eager kernels
                say(f"{objective.name}: training goes on without CUDA graphs ({str(error).splitlines()[0]})")
                self._records = False
                self._recordings.clear()
                return self._compute(objective, batch, weight)
        return self._replay(self._recordings[key], batch, weight)

    def _is_recorded(self, objective: BuiltObjective, batch: Batch) -> bool:
        small = self._size * batch.padded_tokens < _MOST_FLOPS
        return self._records and small and getattr(objective, "replayable", False)

    def _compute(self, objective: BuiltObjective, batch: Batch, weight: float) -> dict[str, Tensor]:
        loss = self._loss(objective, batch.to(self._context.device))
        (weight * loss.total).backward()  # type: ignore[no-untyped-call]
        return {name: value.detach() for name, value in loss.parts.items()}

    def _loss(self, objective: BuiltObjective, batch: Batch) -> Loss:
        with self._context.autocast():
            return self._losses(objective, batch)

    def _record(self, objective: BuiltObjective, batch: Batch) -> _Recording:
        """Capture both passes without computing them; restores the gradients of the weights."""
        device = self._context.device
        static_batch = batch.to(device)
        weight = torch.ones((), device=device)
        parameters = [parameter for parameter in self._network.parameters() if parameter.requires_grad]
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None  # the graph then overwrites its gradients at each replay
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, device):
                loss = self._loss(objective, static_batch)
                (weight * loss.total).backward()  # type: ignore[no-untyped-call]
                parts = {name: value.detach() for name, value in loss.parts.items()}
            gradients = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
        finally:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
        return _Recording(graph, static_batch, weight, parts, gradients)

    @torch.no_grad()
    def _replay(self, recorded: _Recording, batch: FormedBatch, weight: float) -> dict[str, Tensor]:
        batch.copy_into(recorded.batch)
        recorded.weight.fill_(weight)
        for parameter, gradient in recorded.gradients:
            if parameter.grad is gradient:  # of an earlier replay in this step, which the next would overwrite
                parameter.grad = gradient.clone()
        recorded.graph.replay()
        accumulate_gradients(recorded.gradients)
        return {name: value.clone() for name, value in recorded.parts.items()}


def accumulate_gradients(gradients: list[tuple[nn.Parameter, Tensor]]) -> None:
    """Set the gradients of parameters, or add to those that exist."""
    added = [(parameter.grad, gradient) for parameter, gradient in gradients if parameter.grad is not None]
    for parameter, gradient in gradients:
        if parameter.grad is None:
            parameter.grad = gradient
    if added:
        torch._foreach_add_([total for total, _ in added], [gradient for _, gradient in added])
