"""Describe the machine: cores, memory, GPUs, and the energy used by GPUs (NVML) and CPU packages (Linux RAPL)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

_UNREADABLE = (OSError, ValueError, pynvml.NVMLError)


@dataclass
class Counter:
    """A counter of joules that wraps to zero at `span`; 0 for a counter that does not wrap."""

    read: Callable[[], float]
    span: float = 0.0
    last: float = field(init=False)
    total: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.last = self.read()

    def advance(self) -> float:
        """Return the joules since the start."""
        now = self.read()
        if now < self.last and not self.span:
            raise ValueError("a counter without a span decreased")
        self.total += now - self.last + self.span * (now < self.last)
        self.last = now
        return self.total


class EnergyMeter:
    """Measures the energy that devices use, for all processes together; reading it never raises.

    Read it every few minutes: a CPU counter wraps after 65 to 260 kJ, and two wraps between two readings look like
    one. The meter drops a device whose counter fails, because a partial sum would look like a small sum.

    >>> EnergyMeter({}).joules()
    {}
    """

    def __init__(self, counters: dict[str, list[Counter]]) -> None:
        self._counters = counters

    @classmethod
    def start(cls, root: Path = Path("/sys/class/powercap")) -> EnergyMeter:
        """Return a running meter of the GPUs visible to this process and the CPU packages under `root`."""
        return cls(_gpu_counters() | _cpu_counters(root))

    def joules(self) -> dict[str, float]:
        """Return the joules since the start of `gpu0`, `gpu1`, ... and `cpu` (all packages), where readable."""
        joules: dict[str, float] = {}
        for name, counters in list(self._counters.items()):
            try:
                joules[name] = sum(counter.advance() for counter in counters)
            except _UNREADABLE:
                del self._counters[name]
        return joules


def _cpu_counters(root: Path) -> dict[str, list[Counter]]:
    """Return one counter per package, or none if a counter cannot be read (often only root may)."""
    try:
        # Zones inside a package (core, uncore) and around it (psys) would count the same joules again.
        zones = [zone for zone in root.glob("intel-rapl:*") if (zone / "name").read_text().startswith("package")]
        packages = [
            Counter(partial(_joules, zone / "energy_uj"), _joules(zone / "max_energy_range_uj")) for zone in zones
        ]
    except _UNREADABLE:
        return {}
    return {"cpu": packages} if packages else {}


def _joules(path: Path) -> float:
    """Return the value of a kernel file, which is in microjoules."""
    return int(path.read_text(encoding="ascii")) / 1e6


def _gpu_counters() -> dict[str, list[Counter]]:
    """Return a counter for each visible GPU that has one (Volta and later)."""
    counters: dict[str, list[Counter]] = {}
    for number, handle in enumerate(_visible_handles()):
        try:
            counters[f"gpu{number}"] = [Counter(partial(_gpu_joules, handle))]
        except _UNREADABLE:
            continue
    return counters


def _gpu_joules(handle: Any) -> float:
    """Return the joules that a GPU used since its driver was loaded."""
    return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000


def gpu_names() -> list[str]:
    """Return the names of the NVIDIA GPUs visible to this process; none without a driver."""
    return [str(pynvml.nvmlDeviceGetName(handle)) for handle in _visible_handles()]


def _visible_handles() -> list[Any]:
    """Return NVML's handles of the GPUs visible to this process, in CUDA's order."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except pynvml.NVMLError:
        return []
    return [handles[number] for number in visible_gpus(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))]


def visible_gpus(uuids: Sequence[str], visible_devices: str | None) -> list[int]:
    """Return the indices of the GPUs in CUDA_VISIBLE_DEVICES, which has numbers or prefixes of UUIDs.

    `uuids` has all GPUs of the machine, as NVML lists them.

    >>> visible_gpus(["GPU-1a", "GPU-1b", "GPU-2c"], "2,GPU-1b")
    [2, 1]
    """
    if visible_devices is None:
        return list(range(len(uuids)))
    indices: list[int] = []
    for entry in visible_devices.split(","):
        name = entry.strip()
        matches = [n for n, uuid in enumerate(uuids) if name == str(n) or (name and uuid.startswith(name))]
        if len(matches) != 1:
            break  # CUDA ignores all entries after an unknown entry
        indices.extend(matches)
    return indices


_PROCESSORS, _MEMORY = Path("/proc/cpuinfo"), Path("/proc/meminfo")
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_cores() -> int:
    """Return the number of cores that this process may use; a container may limit it."""
    from joblib import cpu_count  # reads the CPU affinity and the limits of containers

    return int(cpu_count())


def available_memory(memory: Path = _MEMORY, limits: tuple[Path, ...] = _MEMORY_LIMITS) -> int:
    """Return the bytes that this process can allocate without swapping, at most the limit of its container."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = memory.read_text(encoding="utf-8").splitlines() if memory.exists() else []
    sizes += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    contents = [path.read_text(encoding="utf-8").strip() for path in limits if path.exists()]
    sizes += [int(content) for content in contents if content.isdigit()]  # "max" means no limit
    return min(sizes)


def describe_machine() -> dict[str, Any]:
    """Return the hardware that running times depend on: processor, cores and GPUs."""
    return {"processor": _processor(), "cores": usable_cores(), "gpus": gpu_names()}


def _processor(listed: Path = _PROCESSORS) -> str:
    """Return the processor's model name, or its architecture if the system does not list the name."""
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


def reset_peak_gpu_memory() -> None:
    """Start a new measurement of `peak_gpu_memory`."""
    cuda = initialized_cuda()
    for number in range(cuda.device_count()) if cuda is not None else ():
        cuda.reset_peak_memory_stats(number)


def peak_gpu_memory() -> int:
    """Return the largest number of bytes reserved on any GPU since the reset; 0 without a GPU."""
    cuda = initialized_cuda()
    return 0 if cuda is None else max(cuda.max_memory_reserved(number) for number in range(cuda.device_count()))


def initialized_cuda() -> Any:
    """Return `torch.cuda` if this process uses a GPU, else None; never imports torch."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
