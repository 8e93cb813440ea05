"""A full disk stops a run with one line; with free space again, the run resumes to the same result."""

from __future__ import annotations

import errno
import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

import endtask
from endtask.encoders import weights
from endtask.errors import InputError
from endtask.executors.processes import run_jobs
from endtask.io import atomic
from endtask.io.atomic import disk_error
from endtask.tokenization import packed_texts as packed
from tests.conftest import Answer
from tests.toy_run import results, toy_settings, write_settings


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


LONG = [pytest.param(stage, marks=pytest.mark.long) for stage in ("read", "select", "pack", "evaluate", "model")]


@pytest.mark.parametrize("stage", ["retrieve", "pretrain", "finetune", *LONG])
def test_full_in_a_stage(
    toy: Path,
    tmp_path: Path,
    finished_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., Answer],
    stage: str,
) -> None:
    out = tmp_path / "run"
    settings = write_settings(tmp_path / "settings.json", toy, out)
    sync = os.fsync
    calls = 0

    def full_in_this_stage(number: int) -> None:
        nonlocal calls
        calls += (out / f"{stage}.partial").exists()
        if calls > 1:  # the first is the manifest's: let the stage begin
            full()
        sync(number)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full_in_this_stage)
        answer = command("run", settings, "--quiet")
    assert answer.code == 2
    assert answer.out == ""
    (error,) = answer.errors
    place = "scratch" if stage == "retrieve" else f"{stage}.partial"
    assert error.startswith(f"endtask: {out}: {out}/{place}/")
    assert "No space left on device (finished stages are safe" in error
    assert not (out / stage).exists()
    assert not list(out.rglob("*.tmp"))
    assert command("run", settings, "--quiet").code == 0
    assert results(out) == results(finished_run)


def test_full_before_the_first_stage(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full)
        with pytest.raises(InputError, match=r"settings\.yaml: No space left"):
            endtask.run(toy_settings(toy, tmp_path / "run"))
    assert endtask.run(toy_settings(toy, tmp_path / "run"), until="read").stages["read"]["train"] == 60


def test_libraries_that_hide_the_reason(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors, by which models are exported, and NumPy report a full disk as errors of their own."""

    def rust(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    def numpy(*_: object, **__: object) -> None:
        raise OSError("12 requested and 0 written")

    settings = toy_settings(toy, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(packed.np, "save", numpy)
        with pytest.raises(InputError, match="No space left on device"):
            endtask.run(settings)
    with monkeypatch.context() as patch:
        patch.setattr(weights, "write_safetensors", rust)
        with pytest.raises(InputError, match="No space left on device"):
            endtask.run(settings)
    assert (tmp_path / "run" / "pack").is_dir()


def test_full_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What NumPy says of a full disk reaches the process that waits for the other."""
    code = """
        import os, time

        def handle(job, report):
            if os.getpid() == job["parent"]:
                time.sleep(0.1)
            else:
                raise OSError("12 requested and 0 written")
    """
    (tmp_path / "full_disk_handler.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(OSError, match="12 requested") as caught:
        run_jobs("full_disk_handler", [{"parent": os.getpid()}] * 1000, 2, lambda: None)
    assert disk_error(caught.value) == os.strerror(errno.ENOSPC)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_numpy_really_says_so() -> None:
    with pytest.raises(OSError, match="requested and") as caught, open("/dev/full", "wb") as file:
        np.zeros(10_000).tofile(file)
    assert disk_error(caught.value) == os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("x"), OSError(errno.ENOENT, "no such file"), OSError("strange")]
)
def test_our_own_mistakes_are_not_blamed_on_the_disk(error: Exception) -> None:
    assert disk_error(error) is None
