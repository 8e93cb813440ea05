"""Recording a CUDA graph, and what must be undone where that fails."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from endtask.encoders.device_context import RECORDING

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
