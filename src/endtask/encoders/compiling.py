"""What is compiled, and how often torch does so anew before it gives up and runs a function as it is written."""

from __future__ import annotations

import torch

from endtask.config import Settings

_SHAPES = 64


def allow_shapes() -> None:
    """Let compiled functions meet many shapes: phases, losses and layers have their own, and share a process."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # before torch 2.7
    setattr(config, name, max(_SHAPES, getattr(config, name)))


def compiles(settings: Settings, device: torch.device) -> bool:
    """Whether work that takes long is compiled: by default on a GPU."""
    return settings.compile is True or (settings.compile == "auto" and device.type == "cuda")
