"""The device that trains."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from endtask.errors import InputError
from endtask.settings import Settings
from endtask.train.device import choose_device


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say which devices this machine has."""

    def set_present(*names: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in names)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in names)

    return set_present


@pytest.mark.parametrize(("names", "chosen"), [((), "cpu"), (("mps",), "mps"), (("cuda", "mps"), "cuda")])
def test_auto_takes_the_best_one_present(present: Any, names: tuple[str, ...], chosen: str) -> None:
    present(*names)
    assert choose_device(Settings(device="auto")) == torch.device(chosen)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_missing_device_is_one_line(present: Any, device: Any) -> None:
    present()
    with pytest.raises(InputError, match=rf"key 'device': this machine has no {device} device \(use device=auto\)"):
        choose_device(Settings(device=device))


def test_the_cpu_can_always_be_asked_for(present: Any) -> None:
    present("cuda")
    assert choose_device(Settings(device="cpu")) == torch.device("cpu")


@pytest.mark.parametrize(("threads", "calls"), [(3, [3]), (None, [])])
def test_threads_are_set_if_asked_for(monkeypatch: pytest.MonkeyPatch, threads: int | None, calls: list[int]) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    choose_device(Settings(device="cpu", threads=threads))
    assert seen == calls
