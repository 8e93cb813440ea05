"""What --devices cluster needs, in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import resolve
from endtask.errors import InputError
from endtask.experiments.ray_workers import on_cluster


@pytest.mark.parametrize(
    ("devices", "message"),
    [(["cluster", "0"], "stands for all GPUs"), (["cluster"], "needs a cluster .*cluster.address=auto")],
)
def test_wrong_devices(devices: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        on_cluster(devices, resolve({}), tmp_path)
