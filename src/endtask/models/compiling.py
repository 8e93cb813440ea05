"""How often torch compiles a function anew before it gives up and runs it as it is written."""

from __future__ import annotations

import torch

_SHAPES = 64


def allow_shapes() -> None:
    """Let compiled functions meet many shapes: phases, losses and layers have their own, and share a process."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # before torch 2.7
    setattr(config, name, max(_SHAPES, getattr(config, name)))
