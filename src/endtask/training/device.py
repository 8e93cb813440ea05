"""Where a phase is computed and in which way: device, threads, precision, compiled or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from endtask.config import Settings
from endtask.encoders.attention import choose_backend
from endtask.encoders.device_context import DeviceContext, allow_shapes, compiles, device_named
from endtask.encoders.network import Network
from endtask.errors import TrainingError

_COMPILED_FROM = 30e6
"""Tokens whose training gains by compiling what that takes, a quarter of a minute (benchmarks/results/replay.json)."""


def choose_device_context(settings: Settings) -> DeviceContext:
    """The device and precision asked for, or the best ones present; also sets the number of CPU threads."""
    device = choose_device(settings)
    if settings.precision == "bfloat16" or (settings.precision == "auto" and _has_bfloat16(device)):
        return DeviceContext(device, torch.bfloat16)
    return DeviceContext(device)


def choose_device(settings: Settings) -> torch.device:
    """The device asked for, or the best one present; also sets the number of CPU threads."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return device_named(settings.device)


def move(network: Network, settings: Settings, context: DeviceContext, *, tokens: float = math.inf) -> Network:
    """Put the network on the device and set how it computes there, for training on about so many tokens."""
    mode = _execution_mode(network, settings, context, tokens)
    compiled = mode == "compiled"
    network.to(context.device)
    network.dtype = context.dtype
    network.backend = network.choose_backend(settings.model.attention, context, fixed_shapes=compiled)
    if compiled:
        allow_shapes()
        network.compile_parts()
    network.fixed_shapes = mode != "plain"
    return network


def check_device(settings: Settings) -> None:
    """Refuse a device or a way of attention that this machine does not have."""
    context = choose_device_context(settings)
    if settings.model.attention != "auto":
        compiled = compiles(settings, context.device)
        choose_backend(settings.model.attention, context.device, context.dtype, fixed_shapes=compiled)


def _execution_mode(
    network: Network, settings: Settings, context: DeviceContext, tokens: float
) -> Literal["plain", "compiled", "graphs"]:
    """How steps are computed; compiling pays from some tokens on, and always for padded tables."""
    if compiles(settings, context.device):
        backend = network.choose_backend(settings.model.attention, context, fixed_shapes=True)
        tables = network.architecture.padded and backend == "padded"
        small = tokens < _COMPILED_FROM and not tables and settings.model.attention != "flex"
        return "graphs" if small and settings.compile == "auto" else "compiled"
    return "graphs" if settings.compile == "graphs" and context.device.type == "cuda" else "plain"


def _has_bfloat16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


# These have no class of their own.
_SIGNS = (
    "MPS backend out of memory",
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


_HINT = (
    "lower pretrain.batch_size (and raise pretrain.gradient_accumulation_steps by as much), pretrain.max_length or "
    "model.size; for fine-tuning finetune.batch_size; resume with --from STAGE"
)


class OutOfMemory(TrainingError):
    """The memory ran out; a stage around may know better what to lower."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(f"the device is out of memory: {detail}", hint=hint)
        self.detail = detail


@contextmanager
def explained_memory_trouble(hint: str | None = None) -> Iterator[None]:
    """Turn the libraries' out-of-memory errors into ours; finished steps stay in the checkpoint.

    A `hint` says what to lower, also where the work inside has explained its trouble already.
    """
    try:
        yield
    except OutOfMemory as error:
        raise (error if hint is None else OutOfMemory(error.detail, hint)) from None
    except (MemoryError, RuntimeError) as error:
        detail = (str(error).splitlines() or ["no details"])[0]
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(sign in detail for sign in _SIGNS):
            raise
        raise OutOfMemory(detail, hint or _HINT) from None
