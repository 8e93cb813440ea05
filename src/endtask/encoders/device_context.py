"""A device, its precision, and the settings of its compiler."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock

import torch

from endtask.config import Settings
from endtask.errors import InputError, did_you_mean
from endtask.processes import ALONE, Processes, current_processes

RECORDING = Lock()
"""A lock for the capture of a CUDA graph, and for streams of other threads.

Torch takes streams from a pool, so another thread may have the stream of the capture; any kernel there breaks it.
"""


@dataclass(frozen=True)
class DeviceContext:
    """A device, and the precision of its matrix products; weights are always float32.

    `processes` train together, each on its own device.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    processes: Processes = ALONE

    @property
    def pins_memory(self) -> bool:
        """Whether to copy batches from pinned memory."""
        return self.device.type == "cuda"

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context that computes matrix products in this precision."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def synchronize(self) -> None:
        """Wait until the device has finished all kernels."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()


def device_named(name: str) -> torch.device:
    """Return the device of this name, for `auto` the best that this machine has; raises `InputError` without it.

    >>> device_named("cpu")
    device(type='cpu')
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device in present if present[device]))
    if name not in present:
        raise InputError(f"unknown device {name!r}", key="device", hint=did_you_mean(name, ("auto", *present)))
    if not present[name]:
        raise InputError(f"this machine has no {name} device", key="device", hint="use device=auto")
    return torch.device(name)


def own_device(device: torch.device) -> torch.device:
    """Return this process's GPU if several processes train on GPUs; other devices unchanged."""
    if device.type == "cuda" and current_processes().count > 1:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def has_amx() -> bool:
    """Return whether this CPU multiplies matrices in bfloat16 by AMX, several times as fast as in float32.

    ONEDNN_MAX_CPU_ISA, by which oneDNN's kernels are limited to older instructions, counts too.
    """
    supported: bool = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()  # torch has no public name
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return supported and (limit in ("", "ALL", "DEFAULT") or "AMX" in limit)


_SHAPES = 64


def allow_shapes() -> None:
    """Raise the limit of shapes per compiled function: phases, losses and layers with their own share a process."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # before torch 2.7
    setattr(config, name, max(_SHAPES, getattr(config, name)))


def compiles(settings: Settings, device: torch.device) -> bool:
    """Return whether long training is compiled: by default on a GPU."""
    return settings.compile is True or (settings.compile == "auto" and device.type == "cuda")
