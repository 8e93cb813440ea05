"""Joules from a made-up sysfs tree and a made-up NVML."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.files.energy import Counter, EnergyMeter, gpu_names, visible_gpus


class FakeNVML:
    """Answers as the driver's library does: by codes, and through pointers."""

    def __init__(self, *millijoules: int | None) -> None:
        self.millijoules = list(millijoules)  # None: this GPU has no counter
        self.init_code = 0

    def nvmlInit_v2(self) -> int:
        return self.init_code

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.millijoules)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = 1000 + index.value
        return 0

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p, text: Any, size: ctypes.c_uint) -> int:
        text.value = f"GPU-{handle.value:x}".encode()[: size.value - 1]
        return 0

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, text: Any, size: ctypes.c_uint) -> int:
        text.value = f"NVIDIA H{handle.value}".encode()[: size.value - 1]
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: ctypes.c_void_p, energy: Any) -> int:
        value = self.millijoules[(handle.value or 0) - 1000]
        if value is None:
            return 3  # NVML_ERROR_NOT_SUPPORTED
        energy._obj.value = value
        return 0


def no_nvml() -> Any:
    raise OSError("libnvidia-ml.so.1: cannot open shared object file")


@pytest.fixture(autouse=True)
def all_gpus_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def write_zone(root: Path, zone: str, name: str, microjoules: int, span: int = 1_000_000_000) -> Path:
    folder = root / zone
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{span}\n")
    return folder / "energy_uj"


def test_packages_are_added_and_what_is_inside_or_around_them_is_not(tmp_path: Path) -> None:
    files = {
        zone: write_zone(tmp_path, zone, name, 5_000_000)
        for zone, name in {
            "intel-rapl:0": "package-0",
            "intel-rapl:0:0": "core",
            "intel-rapl:1": "package-1",
            "intel-rapl:2": "psys",
            "intel-rapl-mmio:0": "package-0",
        }.items()
    }
    meter = EnergyMeter.start(tmp_path, load_nvml=no_nvml)
    assert meter.joules() == {"cpu": 0.0}
    for file in files.values():
        file.write_text("7500000\n")
    assert meter.joules() == {"cpu": 5.0}


def test_a_counter_that_starts_again_at_zero(tmp_path: Path) -> None:
    file = write_zone(tmp_path, "intel-rapl:0", "package-0", 90_000_000, span=100_000_000)
    meter = EnergyMeter.start(tmp_path, load_nvml=no_nvml)
    seen = []
    for value in (95_000_000, 10_000_000, 60_000_000, 20_000_000):
        file.write_text(str(value))
        seen.append(meter.joules()["cpu"])
    assert seen == [5.0, 20.0, 70.0, 130.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 99), max_size=20), st.floats(0, 99))
def test_the_total_is_that_of_a_counter_without_end(steps: list[float], first: float) -> None:
    now = [first]
    counter = Counter(lambda: now[0] % 100, span=100.0)
    for step in steps:
        now[0] += step
        total = counter.advance()
        assert total == pytest.approx(now[0] - first, abs=1e-6)


@pytest.mark.parametrize("content", ["", "not a number\n"])
def test_a_file_without_a_number_is_no_counter(tmp_path: Path, content: str) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1).write_text(content)
    assert EnergyMeter.start(tmp_path, load_nvml=no_nvml).joules() == {}


def test_one_closed_package_leaves_no_half_sum(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    write_zone(tmp_path, "intel-rapl:1", "package-1", 1).unlink()
    assert EnergyMeter.start(tmp_path, load_nvml=no_nvml).joules() == {}


def test_a_counter_that_stops_answering_is_left_out(tmp_path: Path) -> None:
    file = write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    library = FakeNVML(0)
    meter = EnergyMeter.start(tmp_path, load_nvml=lambda: library)
    assert set(meter.joules()) == {"gpu0", "cpu"}
    file.unlink()
    assert set(meter.joules()) == {"gpu0"}
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    assert set(meter.joules()) == {"gpu0"}


def test_nothing_to_read(tmp_path: Path) -> None:
    assert EnergyMeter.start(tmp_path / "absent", load_nvml=no_nvml).joules() == {}


def test_this_machine_is_read_without_an_error() -> None:
    assert all(joules >= 0 for joules in EnergyMeter.start().joules().values())


def test_gpus(tmp_path: Path) -> None:
    library = FakeNVML(1000, None, 50_000)
    meter = EnergyMeter.start(tmp_path, load_nvml=lambda: library)
    library.millijoules = [4500, None, 50_250]
    assert meter.joules() == {"gpu0": 3.5, "gpu2": 0.25}


def test_only_the_gpus_in_use(tmp_path: Path) -> None:
    library = FakeNVML(0, 0, 0)
    assert EnergyMeter.start(tmp_path, gpus=[1], load_nvml=lambda: library).joules() == {"gpu1": 0.0}
    assert EnergyMeter.start(tmp_path, gpus=[], load_nvml=lambda: library).joules() == {}
    assert EnergyMeter.start(tmp_path, gpus=[7], load_nvml=lambda: library).joules() == {}


def test_gpus_of_others_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    library = FakeNVML(0, 0, 0)
    meter = EnergyMeter.start(tmp_path, load_nvml=lambda: library)
    library.millijoules = [1000, 2000, 4000]
    assert meter.joules() == {"gpu0": 4.0}


def test_names_of_the_gpus_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_names(lambda: FakeNVML(1, 2)) == ["NVIDIA H1000", "NVIDIA H1001"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu_names(lambda: FakeNVML(1, 2)) == ["NVIDIA H1001"]
    assert gpu_names(no_nvml) == []
    assert gpu_names(object) == []


def test_a_gpu_counter_that_goes_back_is_left_out(tmp_path: Path) -> None:
    library = FakeNVML(1000)
    meter = EnergyMeter.start(tmp_path, load_nvml=lambda: library)
    library.millijoules = [10]
    assert meter.joules() == {}


def test_a_driver_that_does_not_answer(tmp_path: Path) -> None:
    library = FakeNVML(0)
    library.init_code = 9  # NVML_ERROR_DRIVER_NOT_LOADED
    assert EnergyMeter.start(tmp_path, load_nvml=lambda: library).joules() == {}


def test_a_library_without_the_functions(tmp_path: Path) -> None:
    assert EnergyMeter.start(tmp_path, load_nvml=object).joules() == {}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("0,9,1", [0]),
        ("GPU-bb", [2]),
        ("GPU-a", []),
        ("MIG-aa", []),
    ],
)
def test_what_cuda_shows(wanted: str | None, found: list[int]) -> None:
    assert visible_gpus(["GPU-aa", "GPU-ab", "GPU-bb"], wanted) == found
