"""`endtask doctor`: versions, extras and problems, on machines made up for the test."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from endtask.pipeline import doctor
from endtask.pipeline.doctor import Extra, diagnose, extras
from tests.conftest import Answer

INSTALLED = {"numpy": "2.0", "onnx": "1.10", "optuna": "4.1"}
REQUIRES = [
    "numpy>=1.26",
    "onnx>=1.16; extra == 'onnx'",
    "absent; extra == 'onnx'",
    "optuna>=4; extra == 'search'",
    "endtask[onnx]; extra == 'dev'",
]


def version_of(name: str) -> str:
    if name not in INSTALLED:
        raise metadata.PackageNotFoundError(name)
    return INSTALLED[name]


def test_extras_lack_what_is_absent_or_too_old() -> None:
    assert extras(REQUIRES, version_of) == [Extra("onnx", ("onnx>=1.16", "absent")), Extra("search", ())]


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without problems, whatever this one is."""
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage(10**12, 0, 10**12))
    monkeypatch.setattr(doctor, "available_memory", lambda: 10**10)
    monkeypatch.setattr(doctor, "_requirements", lambda requires=None: [])
    monkeypatch.setattr(doctor, "describe_machine", lambda: {"processor": "P", "cores": 4, "gpus": []})
    monkeypatch.setattr(doctor, "_caches", dict)
    for name in ("OMP_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "NUMBA_DISABLE_JIT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("healthy")
def test_a_healthy_machine(command: Callable[..., Answer]) -> None:
    answer = command("doctor")
    assert answer.code == 0
    assert "no known problems" in answer.out
    assert "P, 4 cores, 10 GB of memory available" in answer.out


@pytest.mark.usefixtures("healthy")
def test_problems_have_a_remedy_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., Answer], tmp_path: Path
) -> None:
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage(1, 1, 10**9))
    monkeypatch.setattr(doctor, "available_memory", lambda: 10**9)
    monkeypatch.setattr(doctor, "describe_machine", lambda: {"processor": "P", "cores": 4, "gpus": ["H200"]})
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    answer = command("doctor", "--json")
    assert answer.code == 1
    found = [problem["what"] for problem in json.loads(answer.out)["problems"]]
    assert [what.split()[0] for what in found] == ["H200", "1", "1", "NUMBA_DISABLE_JIT"]
    assert all(problem.remedy for problem in diagnose(tmp_path).problems)


@pytest.mark.usefixtures("healthy")
def test_libraries_outside_their_range_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    from packaging.requirements import Requirement

    wanted = [Requirement("numpy>=99"), Requirement("no-such-package"), Requirement("numpy>=1; extra == 'x'")]
    monkeypatch.setattr(doctor, "_requirements", lambda requires=None: wanted)
    assert [problem.what.split()[0] for problem in diagnose().problems] == ["numpy", "no-such-package"]
