"""Toy runs that end after pre-training without labels; read only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.toy_run import toy_settings
from tests.toy_task_types import write_toy_of_type

WITHOUT_LABELS = {"max_length": 16, "batch_size": 8, "weighting": {"rho1": "inf"}}


def make_run(data: Path, folder: Path, **changes: object) -> Path:
    """A run of the toy task up to pre-training."""
    import endtask

    settings = toy_settings(data, folder, **{"budget": "2steps", "pretrain": WITHOUT_LABELS, **changes})
    return endtask.run(settings, until="pretrain").folder


@pytest.fixture(scope="session")
def plain_run(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(toy, tmp_path_factory.mktemp("few") / "plain")


@pytest.fixture(scope="session")
def tags_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = write_toy_of_type(tmp_path_factory.mktemp("tags-data"), "token_classification")
    return make_run(data, tmp_path_factory.mktemp("few") / "tags")


@pytest.fixture
def two_runs(plain_run: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two runs with the same weights under two names, which must not differ clearly."""
    return Path(shutil.copytree(plain_run, tmp_path / "one")), Path(shutil.copytree(plain_run, tmp_path / "two"))
