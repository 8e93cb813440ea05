"""Joules, read from the counters of NVIDIA GPUs (NVML) and of CPU packages (Linux RAPL) where they can be read."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

_UNREADABLE = (OSError, ValueError)
_UUID_BYTES = _NAME_BYTES = 96


@dataclass
class Counter:
    """A count of joules that only grows, up to `span`, where it starts again at zero."""

    read: Callable[[], float]
    """Raises OSError or ValueError where there is nothing to read."""
    span: float | None = None
    last: float = field(init=False)
    total: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.last = self.read()

    def advance(self) -> float:
        """Joules since the start."""
        now = self.read()
        if now < self.last and self.span is None:
            raise ValueError("a counter without a span went back")
        self.total += now - self.last + (self.span or 0.0) * (now < self.last)
        self.last = now
        return self.total


class EnergyMeter:
    """Joules used since the start, by everything that ran on these devices; it never raises.

    Ask it every few minutes at least: a CPU's counter starts again at zero after some 65 to 260 kJ, and two rounds
    between two questions look like one. A counter that stops answering is left out from then on, since half a sum
    would pass for a small one.

    >>> EnergyMeter({}).joules()
    {}
    """

    def __init__(self, counters: dict[str, list[Counter]]) -> None:
        self._counters = counters

    @classmethod
    def start(
        cls,
        root: Path = Path("/sys/class/powercap"),
        *,
        gpus: Iterable[int] | None = None,
        load_nvml: Callable[[], Any] = lambda: ctypes.CDLL("libnvidia-ml.so.1"),
    ) -> EnergyMeter:
        """Begin to count: CPU packages under `root`, and the GPUs with these CUDA numbers (None: all visible ones)."""
        counters = _gpu_counters(load_nvml, gpus)
        if packages := _cpu_counters(root):
            counters["cpu"] = packages
        return cls(counters)

    def joules(self) -> dict[str, float]:
        """Joules since the start, as `gpu0`, `gpu1`, ... and `cpu` (all packages); empty where nothing can be read."""
        found: dict[str, float] = {}
        for name, counters in list(self._counters.items()):
            try:
                found[name] = sum(counter.advance() for counter in counters)
            except _UNREADABLE:
                del self._counters[name]
        return found


def _cpu_counters(root: Path) -> list[Counter]:
    """One counter per package, or none at all where one of them is closed to us, as it often is to all but root."""
    try:
        return [_package_counter(zone) for zone in sorted(root.glob("intel-rapl:*")) if _is_package(zone)]
    except _UNREADABLE:
        return []


def _is_package(zone: Path) -> bool:
    # Zones inside a package (core, uncore) and around it (psys) would count the same joules again.
    return (zone / "name").read_text(encoding="ascii").startswith("package")


def _package_counter(zone: Path) -> Counter:
    return Counter(partial(_joules_in, zone / "energy_uj"), span=_joules_in(zone / "max_energy_range_uj"))


def _joules_in(path: Path) -> float:
    """The kernel writes microjoules."""
    return int(path.read_text(encoding="ascii")) / 1e6


def _gpu_counters(load: Callable[[], Any], gpus: Iterable[int] | None) -> dict[str, list[Counter]]:
    """A counter for each of these GPUs that has one (Volta and later)."""
    try:
        library = NVML(load())
        handles = library.visible_handles()
    except (*_UNREADABLE, AttributeError):  # a driver too old lacks the function
        return {}
    counters: dict[str, list[Counter]] = {}
    for number in sorted(set(range(len(handles)) if gpus is None else gpus)):
        try:
            counters[f"gpu{number}"] = [Counter(partial(library.joules, handles[number]))]
        except (*_UNREADABLE, AttributeError, IndexError):
            continue  # this one has no counter; the others may
    return counters


def gpu_names(load_nvml: Callable[[], Any] = lambda: ctypes.CDLL("libnvidia-ml.so.1")) -> list[str]:
    """The NVIDIA GPUs that CUDA shows to this process; none where the driver does not tell."""
    try:
        library = NVML(load_nvml())
        return [library.name(handle) for handle in library.visible_handles()]
    except (*_UNREADABLE, AttributeError):  # a driver too old lacks the function
        return []


class NVML:
    """The five functions we need of NVIDIA's management library; each raises OSError where it fails."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("nvmlInit_v2")

    def visible_handles(self) -> list[ctypes.c_void_p]:
        """The GPUs that CUDA shows to this process, in its order."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        handles = [self._handle(index) for index in range(count.value)]
        visible = visible_gpus([self._uuid(handle) for handle in handles], os.environ.get("CUDA_VISIBLE_DEVICES"))
        return [handles[index] for index in visible]

    def joules(self, handle: ctypes.c_void_p) -> float:
        """Joules of a GPU since its driver was loaded."""
        millijoules = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(millijoules))
        return millijoules.value / 1000

    def name(self, handle: ctypes.c_void_p) -> str:
        """What its maker calls a GPU."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("nvmlDeviceGetName", handle, text, ctypes.c_uint(_NAME_BYTES))
        return text.value.decode("utf-8", "replace")

    def _handle(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def _uuid(self, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_UUID_BYTES)
        self._call("nvmlDeviceGetUUID", handle, text, ctypes.c_uint(_UUID_BYTES))
        return text.value.decode("ascii")

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} answered {code}")


def visible_gpus(uuids: Sequence[str], wanted: str | None) -> list[int]:
    """Which of the machine's GPUs CUDA shows, given CUDA_VISIBLE_DEVICES: numbers or beginnings of UUIDs.

    NVML itself shows all of them, and those of others would count as ours.

    >>> visible_gpus(["GPU-1a", "GPU-1b", "GPU-2c"], "2,GPU-1b")
    [2, 1]
    """
    if wanted is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for entry in wanted.split(","):
        name = entry.strip()
        matches = [n for n, uuid in enumerate(uuids) if name == str(n) or (name and uuid.startswith(name))]
        if len(matches) != 1:
            break  # as CUDA does: what comes after a name that it does not know is not shown
        found.extend(matches)
    return found
