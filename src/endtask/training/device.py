"""Choice of device, threads, precision and compilation, and the messages for a device out of memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from endtask.config import Settings
from endtask.encoders.attention import choose_backend
from endtask.encoders.device_context import DeviceContext, allow_shapes, compiles, device_named, has_amx, own_device
from endtask.encoders.network import Network
from endtask.errors import InputError, TrainingError
from endtask.io.stage_folder import StageFolder
from endtask.progress import warn

_COMPILED_FROM = 30e6
"""Tokens from which training saves the quarter minute that compiling takes (benchmarks/results/replay.json)."""


def choose_device_context(settings: Settings) -> DeviceContext:
    """Return the device and precision of the settings, or the best ones present; also set the number of CPU threads."""
    device = own_device(choose_device(settings))
    if settings.precision == "bfloat16" or (settings.precision == "auto" and _has_bfloat16(device)):
        return DeviceContext(device, torch.bfloat16)
    return DeviceContext(device)


def choose_device(settings: Settings) -> torch.device:
    """Return the device of the settings, or the best one present; also set the number of CPU threads."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return device_named(settings.device)


ANY_THREADS = "ENDTASK_ANY_THREADS"
"""The environment variable that lets a stage go on with another number of threads."""


def check_arithmetic(stage: StageFolder, context: DeviceContext) -> None:
    """Raise `InputError` if a resumed stage would train on a CPU in another precision or with other threads.

    The last bits would differ. Call it once the stage has its plan.
    """
    if context.device.type != "cpu":
        return
    _check_precision(stage, str(context.dtype).removeprefix("torch."))
    _check_threads(stage, torch.get_num_threads())


def _check_precision(stage: StageFolder, precision: str) -> None:
    before = stage.plan.get("precision", precision)
    if before != precision:
        raise InputError(
            f"began in {before} and would go on in {precision}: `precision: auto` is bfloat16 on CPUs with AMX only",
            path=stage.partial,
            hint=f"go on on a machine like the first, or --from {stage.name} --set precision={before}",
        )
    stage.set_plan(precision=precision)


def _check_threads(stage: StageFolder, count: int) -> None:
    before = stage.plan.get("threads", count)
    if before != count and not os.environ.get(ANY_THREADS):
        raise InputError(
            f"began with {before} CPU threads and would go on with {count}, so that its results would differ in their "
            "last bits from those of an uninterrupted run",
            path=stage.partial,
            hint=f"OMP_NUM_THREADS={before} in the environment goes on as it began; {ANY_THREADS}=1 accepts other bits",
        )
    if before != count:
        warn(f"{stage.name}: goes on with {count} CPU threads instead of {before}; the last bits may differ")
    stage.set_plan(threads=count)


def move(network: Network, settings: Settings, context: DeviceContext, *, tokens: float = math.inf) -> Network:
    """Move the network to the device; choose attention and compilation for training on about `tokens` tokens."""
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
    """Raise `InputError` for a device or an attention backend that this machine does not have."""
    context = choose_device_context(settings)
    if settings.model.attention != "auto":
        compiled = compiles(settings, context.device)
        choose_backend(settings.model.attention, context.device, context.dtype, fixed_shapes=compiled)


def _execution_mode(
    network: Network, settings: Settings, context: DeviceContext, tokens: float
) -> Literal["plain", "compiled", "graphs"]:
    """Return how to compute steps; compiling pays from 30 million tokens on, and always for padded batches."""
    if compiles(settings, context.device):
        backend = network.choose_backend(settings.model.attention, context, fixed_shapes=True)
        is_padded = network.architecture.padded and backend == "padded"
        is_short = tokens < _COMPILED_FROM and not is_padded and settings.model.attention != "flex"
        return "graphs" if is_short and settings.compile == "auto" else "compiled"
    return "graphs" if settings.compile == "graphs" and context.device.type == "cuda" else "plain"


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cpu":
        return has_amx()
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


_OUT_OF_MEMORY_TEXTS = (  # of errors without a class of their own
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
    """The device is out of memory; a caller may replace the hint."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(f"the device is out of memory: {detail}", hint=hint)
        self.detail = detail


@contextmanager
def explain_out_of_memory(hint: str | None = None) -> Iterator[None]:
    """Turn out-of-memory errors of the libraries into `OutOfMemory`; the checkpoint has the finished steps.

    A `hint` names the settings to lower; it replaces the hint of a nested block.
    """
    try:
        yield
    except OutOfMemory as error:
        raise (error if hint is None else OutOfMemory(error.detail, hint)) from None
    except (MemoryError, RuntimeError) as error:
        detail = (str(error).splitlines() or ["no details"])[0]
        known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not known and not any(text in detail for text in _OUT_OF_MEMORY_TEXTS):
            raise
        raise OutOfMemory(detail, hint or _HINT) from None
