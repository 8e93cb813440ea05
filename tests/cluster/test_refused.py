"""What several processes cannot do, in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from endtask.config import resolve
from endtask.errors import InputError
from endtask.training.distributed import check_distributed
from tests.conftest import Answer

OBJECTIVES = {"mlm": {"kind": "mlm", "texts": "selection"}, "task": {"kind": "task", "texts": "task"}}


@pytest.mark.parametrize(
    ("pretrain", "key"),
    [
        ({"weighting": "meta", "objectives": OBJECTIVES}, "weighting"),
        ({"reselect": {"every": 5}}, "reselect"),
    ],
)
def test_methods_that_need_all_weights(pretrain: dict[str, Any], key: str) -> None:
    check_distributed(resolve({"pretrain": pretrain, "distributed": "ddp"}))
    with pytest.raises(InputError, match=f"pretrain.{key}.* needs all weights"):
        check_distributed(resolve({"pretrain": pretrain, "distributed": "fsdp"}))


def test_other_commands_in_several_processes(command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    answer = command("compare", "settings.yaml")
    assert answer.code == 2
    assert "endtask compare runs in one process" in answer.err


def test_no_processes(command: Callable[..., Answer]) -> None:
    answer = command("run", "settings.yaml", "--nproc", "0")
    assert (answer.code, "--nproc" in answer.err) == (2, True)
