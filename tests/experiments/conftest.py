"""Fixtures of the tests of comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.compare_stubs import Stubs


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the small pretrained encoder were not installed."""
    monkeypatch.setattr("endtask.experiments.baselines.small_pretrained", lambda: None)


@pytest.fixture(autouse=True)
def few_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests and intervals of tables from fewer draws; their own tests have their own numbers."""
    monkeypatch.setattr("endtask.experiments.comparison.PERMUTATIONS", 200)


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    """Training that costs nothing, in place of the real one."""
    return Stubs().install(monkeypatch)


@pytest.fixture
def toy_files(toy: Path) -> Path:
    """The toy task and corpus, under a name that leaves `toy` to the settings made from them."""
    return toy
