"""Long runs: another number of threads is refused before training goes on, and a loss that diverges names its batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from benchmarks.robustness.damages import damage
from endtask.config import load_settings
from endtask.encoders.device_context import DeviceContext
from endtask.errors import InputError
from endtask.io.stage_folder import StageFolder
from endtask.task import Task
from endtask.training.checkpoint import CHECKPOINT, CHECKPOINT_BEFORE
from endtask.training.device import ANY_THREADS, check_arithmetic
from endtask.training.diverged import batch_in_words
from endtask.training.optimizer import Optimizer
from endtask.training.pretrain_phase import pretrain_phase
from tests.conftest import Answer
from tests.toy_run import results, write_settings

Command = Callable[..., Answer]
CPU = DeviceContext(torch.device("cpu"))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def stage_of(run: Path) -> StageFolder:
    stage = StageFolder(run, "pretrain", "abc", {}, {})
    stage.start()
    return stage


def test_another_number_of_threads_is_refused(tmp_path: Path, two_threads: None) -> None:
    check_arithmetic(stage_of(tmp_path), CPU)
    check_arithmetic(stage_of(tmp_path), CPU)
    torch.set_num_threads(1)
    message = r"began with 2 CPU threads and would go on with 1.*OMP_NUM_THREADS=2 in the environment goes on"
    with pytest.raises(InputError, match=message):
        check_arithmetic(stage_of(tmp_path), CPU)
    check_arithmetic(stage_of(tmp_path), DeviceContext(torch.device("cuda")))


def test_another_precision_is_refused(tmp_path: Path) -> None:
    low = DeviceContext(torch.device("cpu"), torch.bfloat16)
    check_arithmetic(stage_of(tmp_path), low)
    check_arithmetic(stage_of(tmp_path), low)
    with pytest.raises(InputError, match=r"began in bfloat16 and would go on in float32.*--set precision=bfloat16"):
        check_arithmetic(stage_of(tmp_path), CPU)


def test_another_number_is_accepted_with_a_line(
    tmp_path: Path, two_threads: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_arithmetic(stage_of(tmp_path), CPU)
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        patch.setenv(ANY_THREADS, "1")
        check_arithmetic(stage_of(tmp_path), CPU)
    assert "pretrain: goes on with 1 CPU threads instead of 2; the last bits may differ" in capsys.readouterr().err
    check_arithmetic(stage_of(tmp_path), CPU)  # it goes on with those


def test_the_command_and_the_checkpoints(
    toy: Path, tmp_path: Path, finished_run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, resumed with other threads, with the same threads, and from the checkpoint before the damaged one."""
    settings, run = write_settings(tmp_path / "settings.json", toy, tmp_path / "run", threads=None), tmp_path / "run"
    step, calls = Optimizer.step, []

    def signalled(optimizer: Optimizer, factor: float) -> Any:
        calls.append(factor)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(optimizer, factor)

    monkeypatch.setattr(Optimizer, "step", signalled)
    torch.set_num_threads(2)
    try:
        assert command("run", settings, "--quiet").code == 143
        torch.set_num_threads(1)
        answer = command("run", settings, "--quiet")
        assert (answer.code, len(answer.errors)) == (2, 1)
        assert "pretrain.partial: began with 2 CPU threads and would go on with 1" in answer.err
    finally:
        torch.set_num_threads(1)
    assert (run / "pretrain.partial" / CHECKPOINT_BEFORE).exists()
    damage(run / "pretrain.partial" / CHECKPOINT, "flip", Random(0))
    monkeypatch.setenv(ANY_THREADS, "1")
    answer = command("run", settings, "--quiet")
    assert answer.code == 0, answer.err
    assert "checkpoint.safetensors: damaged; training goes on from the checkpoint before, after step 4" in answer.err
    assert results(run).keys() == results(finished_run).keys()
    assert not list(run.rglob("checkpoint*"))


def test_the_batch_of_a_step_in_words(finished_run: Path, toy: Path) -> None:
    settings = load_settings(finished_run / "settings.yaml")
    phase = pretrain_phase(Task.read(toy / "task"), finished_run / "pack", settings)
    phase = replace(phase, steps=6)
    words = [batch_in_words(phase, step) for step in (1, 2)]
    assert words[0] != words[1]
    assert any("passages " in text for text in words) or any("of train" in text for text in words)
