"""What this machine offers to this process."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from endtask.io.energy import gpu_names

_PROCESSORS, _MEMORY = Path("/proc/cpuinfo"), Path("/proc/meminfo")
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_cores() -> int:
    """Cores that this process may use: in a container often fewer than the machine has."""
    from joblib import cpu_count  # reads the CPU affinity and the limits of containers

    return int(cpu_count())


def available_memory(memory: Path = _MEMORY, limits: tuple[Path, ...] = _MEMORY_LIMITS) -> int:
    """Bytes that this process could take without swapping; in a container at most its limit."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = memory.read_text(encoding="utf-8").splitlines() if memory.exists() else []
    found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    contents = [path.read_text(encoding="utf-8").strip() for path in limits if path.exists()]
    found += [int(content) for content in contents if content.isdigit()]  # "max" is no limit
    return min(found)


def describe_machine() -> dict[str, Any]:
    """What a time in seconds depends on: processor, cores and GPUs."""
    return {"processor": _processor(), "cores": usable_cores(), "gpus": gpu_names()}


def _processor(listed: Path = _PROCESSORS) -> str:
    """The processor's name where the system gives one, else its kind."""
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
