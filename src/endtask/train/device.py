"""Which device trains, and with how many threads."""

from __future__ import annotations

import torch

from endtask.errors import InputError
from endtask.settings import Settings


def choose_device(settings: Settings) -> torch.device:
    """The device asked for, or the best one present; also sets the number of CPU threads."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if settings.device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if present[name]))
    if not present[settings.device]:
        raise InputError(f"this machine has no {settings.device} device", key="device", hint="use device=auto")
    return torch.device(settings.device)
