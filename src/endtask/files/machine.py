"""What this machine offers to this process."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from endtask.files.energy import gpu_names

_PROCESSORS = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Cores that this process may run on: in a container often fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_machine() -> dict[str, Any]:
    """What a figure in seconds has to be read with: processor, cores and GPUs."""
    return {"processor": _processor(), "cores": usable_cores(), "gpus": gpu_names()}


def _processor(listed: Path = _PROCESSORS) -> str:
    """The processor's name where the system tells, else its kind."""
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
