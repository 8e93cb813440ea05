"""Out of memory: one line that names the settings to lower, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from endtask.config import Budget
from endtask.errors import InputError, TrainingError
from endtask.training.budget_plan import measure_cost
from endtask.training.checkpoint import Checkpoints
from endtask.training.device import explain_out_of_memory
from endtask.training.loop import build_optimizer
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase

from .numbers import number_phase

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ...\nSee documentation"
ERRORS: list[Callable[[], Exception]] = [
    lambda: torch.OutOfMemoryError(CUDA),
    lambda: RuntimeError("MPS backend out of memory (MPS allocated: 5 GB)"),
    lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    lambda: MemoryError("Unable to allocate 9.00 EiB for an array"),
    MemoryError,
]


@pytest.mark.parametrize("make", ERRORS)
def test_the_line_names_the_settings_to_lower(make: Callable[[], Exception]) -> None:
    with pytest.raises(TrainingError) as raised, explain_out_of_memory():
        raise make()
    line = str(raised.value)
    assert isinstance(raised.value, InputError)
    assert line.startswith("the device is out of memory: ")
    assert "\n" not in line
    for name in ("pretrain.batch_size", "pretrain.gradient_accumulation_steps", "pretrain.max_length", "model.size"):
        assert name in line
    assert "finetune.batch_size" in line


@pytest.mark.parametrize("error", [RuntimeError("sizes do not match"), ValueError("no"), KeyboardInterrupt()])
def test_other_errors_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, explain_out_of_memory():
        raise error
    assert raised.value is error


def test_real_errors_of_allocators_are_known() -> None:
    with pytest.raises(TrainingError, match="DefaultCPUAllocator"), explain_out_of_memory():
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(TrainingError, match="Unable to allocate"), explain_out_of_memory():
        np.empty(2**60, dtype=np.uint8)


def breaking_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Phase:
    """A phase whose loss runs out of memory once, at a step."""
    phase = number_phase()
    objective = phase.objectives["sum"]
    original, calls = objective.loss, []

    def loss(*arguments: object) -> object:
        calls.append(None)
        if len(calls) == step:
            raise torch.OutOfMemoryError(CUDA)
        return original(*arguments)

    monkeypatch.setattr(objective, "loss", loss)
    return phase


def test_a_phase_says_so_and_keeps_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = breaking_at(8, monkeypatch)
    with pytest.raises(TrainingError, match=r"out of memory: CUDA out of memory. Tried to allocate 2.00 GiB"):
        run_phase(phase, tmp_path, label="test")
    again = number_phase()
    kept = Checkpoints(tmp_path, again.network, build_optimizer(again), again.weighting)
    assert (kept.load() or (None,))[0] == 6
    kept.close()


def test_the_trial_that_measures_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainingError, match=r"lower pretrain.batch_size"):
        measure_cost(breaking_at(2, monkeypatch), Budget.parse("10s"))
