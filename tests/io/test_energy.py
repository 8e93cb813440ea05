"""Energy in joules from a made-up sysfs tree and a made-up driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.io.machine import Counter, EnergyMeter, gpu_names, visible_gpus


class FakeDriver:
    """Millijoules by GPU; a GPU of None has no counter."""

    def __init__(self, *millijoules: int | None) -> None:
        self.millijoules = list(millijoules)

    def energy(self, handle: int) -> int:
        value = self.millijoules[handle]
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value


Install = Callable[..., FakeDriver]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace NVIDIA's driver by a fake one."""

    def replace(*millijoules: int | None) -> FakeDriver:
        driver = FakeDriver(*millijoules)
        fakes = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: len(driver.millijoules),
            "nvmlDeviceGetHandleByIndex": lambda number: number,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: f"NVIDIA H{handle}",
            "nvmlDeviceGetTotalEnergyConsumption": driver.energy,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(pynvml, name, fake)
        return driver

    return replace


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlInit", fail)


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
    meter = EnergyMeter.start(tmp_path)
    assert meter.joules() == {"cpu": 0.0}
    for file in files.values():
        file.write_text("7500000\n")
    assert meter.joules() == {"cpu": 5.0}


def test_a_counter_that_starts_again_at_zero(tmp_path: Path) -> None:
    file = write_zone(tmp_path, "intel-rapl:0", "package-0", 90_000_000, span=100_000_000)
    meter = EnergyMeter.start(tmp_path)
    seen = []
    for value in (95_000_000, 10_000_000, 60_000_000, 20_000_000):
        file.write_text(str(value))
        seen.append(meter.joules()["cpu"])
    assert seen == [5.0, 20.0, 70.0, 130.0]


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
    assert EnergyMeter.start(tmp_path).joules() == {}


def test_one_closed_package_leaves_no_half_sum(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    write_zone(tmp_path, "intel-rapl:1", "package-1", 1).unlink()
    assert EnergyMeter.start(tmp_path).joules() == {}


def test_a_counter_that_fails_is_left_out(tmp_path: Path, install: Install) -> None:
    file = write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    install(0)
    meter = EnergyMeter.start(tmp_path)
    assert set(meter.joules()) == {"gpu0", "cpu"}
    file.unlink()
    assert set(meter.joules()) == {"gpu0"}
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    assert set(meter.joules()) == {"gpu0"}


def test_nothing_to_read(tmp_path: Path) -> None:
    assert EnergyMeter.start(tmp_path / "absent").joules() == {}
    assert gpu_names() == []


def test_this_machine_is_read_without_an_error() -> None:
    assert all(joules >= 0 for joules in EnergyMeter.start().joules().values())


def test_gpus(tmp_path: Path, install: Install) -> None:
    driver = install(1000, None, 50_000)
    meter = EnergyMeter.start(tmp_path)
    driver.millijoules = [4500, None, 50_250]
    assert meter.joules() == {"gpu0": 3.5, "gpu2": 0.25}


def test_hidden_gpus_are_not_counted(tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    driver = install(0, 0, 0)
    meter = EnergyMeter.start(tmp_path)
    driver.millijoules = [1000, 2000, 4000]
    assert meter.joules() == {"gpu0": 4.0}


def test_names_of_the_visible_gpus(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(1, 2)
    assert gpu_names() == ["NVIDIA H0", "NVIDIA H1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu_names() == ["NVIDIA H1"]


def test_a_gpu_counter_that_goes_back_is_left_out(tmp_path: Path, install: Install) -> None:
    driver = install(1000)
    meter = EnergyMeter.start(tmp_path)
    driver.millijoules = [10]
    assert meter.joules() == {}


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
