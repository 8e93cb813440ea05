"""One stage instead of two (TLM, Table 7), and a warm-up that was made for a longer training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import endtask
from endtask.encoders.weights import load_tensors
from tests.toy_run import toy_settings


def test_one_stage_under_tlms_head_trains_the_head_that_is_saved(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = toy_settings(toy, tmp_path / "run", skip_finetuning=True)
    tree["pretrain"] = {**tree["pretrain"], "task_head": "tlm", "warmup_steps": 900, "weighting": {"rho1": 1}}
    result = endtask.run(tree)
    assert 0 <= result.stages["evaluate"]["mean"] <= 1
    weights = load_tensors(tmp_path / "run" / "pretrain" / "weights.safetensors")[0]
    assert not any(name.startswith("heads.tlm") for name in weights)
    task_head = [value for name, value in weights.items() if name.startswith("heads.task.") and name.endswith("bias")]
    assert any(bool(torch.as_tensor(value).any()) for value in task_head)  # biases start at 0
    assert "a warm-up of 900 steps is made for a longer training" in " ".join(capsys.readouterr().err.split())
