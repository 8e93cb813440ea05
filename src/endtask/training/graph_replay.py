"""The loss of a batch and its gradient: order by order, or on a GPU as one order that was recorded before.

A small network on a small batch is done with each kernel before Python has asked for the next. A CUDA graph holds all
kernels of forward and backward pass; one call starts them, on whatever lies in the batch that they were recorded with.
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

_END_OF_POOL = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")  # as torch calls it, now and before


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Record the orders of this block instead of carrying them out.

    The graph has memory of its own: graphs may only share some if they are always replayed in one order. Other threads
    make batches ready and pin them meanwhile, which is no harm.
    """
    stream, pool = torch.cuda.current_stream(device), torch.cuda.graph_pool_handle()
    with RECORDING:
        try:
            with _no_garbage(), torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
                yield
        except RuntimeError:
            _undo(device, stream, pool)
            raise


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect it before, not meanwhile: a graph of an earlier training that is destroyed then spoils the recording.

    Torch did so itself until 2.8.
    """
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _undo(device: torch.device, stream: Any, pool: Any) -> None:
    """Leave the stream, the memory and the random numbers of a recording that failed, none of which torch does for us.

    Training would go on in the recording's stream, and torch (without pytorch#180395) in the belief that it records: it
    then gives no memory back that two streams have used. Trainings ended with dozens of gigabytes that nobody held.
    What the recording itself had taken stays so until the process ends (without pytorch#190348): to release it twice
    would end the process, and nothing tells whether torch does it.
    """
    number = torch.cuda._utils._get_device_index(device, optional=True)
    torch.cuda.set_stream(stream)
    end = next((getattr(torch._C, name) for name in _END_OF_POOL if hasattr(torch._C, name)), None)
    if end is not None:
        with suppress(RuntimeError):  # it has ended
            end(number, pool)
    generator = torch.cuda.default_generators[number]
    seed = generator.initial_seed()
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())  # one that belongs to no graph
    generator.manual_seed(seed)


_TIMES_BEFORE = 3
"""Batches that are computed order by order first: kernels are compiled and chosen, and libraries take their memory."""

_MOST_FORMS = 16
"""Each takes memory; a phase with more of them than this, by mistake, must not take all of it."""
_MOST_FLOPS = 2e12
"""Weights times tokens of a batch from which on a GPU has so much to do that Python keeps up, as 110 M and 32,768."""


@runtime_checkable
class FormedBatch(Protocol):
    """A batch that can be written over one of the same form."""

    @property
    def form(self) -> Hashable:
        """All that the orders depend on: shapes, types, and values that are no tensors but used."""
        ...

    def write_over(self, other: Self) -> None:
        """Put this batch's tensors into the other's, which lie on a device."""
        ...


@dataclass(frozen=True)
class _Recording:
    """A graph, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Any
    weight: Tensor  # ()
    parts: dict[str, Tensor]
    gradients: list[tuple[nn.Parameter, Tensor]]


class Backward:
    """Adds the gradient of a weighted loss to the weights' own, and returns the parts of the loss.

    Recorded are objectives that say so (`replayable`), in batches of fixed shape, each form for itself. Dropout is the
    same either way: a replay draws from the seed of its step.
    """

    def __init__(self, network: Any, context: DeviceContext) -> None:
        self._network, self._context = network, context
        self._records = context.device.type == "cuda" and getattr(network, "fixed_shapes", False)
        self._size = sum(weight.numel() for weight in network.parameters())
        self._times: Counter[Hashable] = Counter()
        self._recordings: dict[Hashable, _Recording] = {}

    def __call__(self, objective: BuiltObjective, batch: Batch, weight: float) -> dict[str, Tensor]:
        """Of a batch that lies on the host."""
        if not (self._is_recorded(objective, batch) and isinstance(batch, FormedBatch)):
            return self._compute(objective, batch, weight)
        key = (objective.name, batch.form)
        if key not in self._recordings:
            self._times[key] += 1
            if self._times[key] <= _TIMES_BEFORE or len(self._recordings) == _MOST_FORMS:
                return self._compute(objective, batch, weight)
            try:
                self._recordings[key] = self._record(objective, batch)
            except RuntimeError as error:  # also: out of memory, of which a graph needs more
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
            return objective.loss(self._network, batch)

    def _record(self, objective: BuiltObjective, batch: Batch) -> _Recording:
        """Nothing is computed here; gradients that are there already stay as they are."""
        device = self._context.device
        own = batch.to(device)
        weight = torch.ones((), device=device)
        weights = [one for one in self._network.parameters() if one.requires_grad]
        before = [one.grad for one in weights]
        for one in weights:
            one.grad = None  # a graph that finds none writes its gradients anew at each replay
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, device):
                loss = self._loss(objective, own)
                (weight * loss.total).backward()  # type: ignore[no-untyped-call]
                parts = {name: value.detach() for name, value in loss.parts.items()}
            gradients = [(one, one.grad) for one in weights if one.grad is not None]
        finally:
            for one, gradient in zip(weights, before, strict=True):
                one.grad = gradient
        return _Recording(graph, own, weight, parts, gradients)

    @torch.no_grad()
    def _replay(self, recorded: _Recording, batch: FormedBatch, weight: float) -> dict[str, Tensor]:
        batch.write_over(recorded.batch)
        recorded.weight.fill_(weight)
        for one, gradient in recorded.gradients:
            if one.grad is gradient:  # this step has replayed it before: what it left would be written over
                one.grad = gradient.clone()
        recorded.graph.replay()
        put_gradients(recorded.gradients)
        return {name: value.clone() for name, value in recorded.parts.items()}


def put_gradients(gradients: list[tuple[nn.Parameter, Tensor]]) -> None:
    """Give weights their gradients, or add them to those that are there."""
    added = [(weight.grad, gradient) for weight, gradient in gradients if weight.grad is not None]
    for weight, gradient in gradients:
        if weight.grad is None:
            weight.grad = gradient
    if added:
        torch._foreach_add_([present for present, _ in added], [new for _, new in added])
