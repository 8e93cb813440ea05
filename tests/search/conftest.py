"""What the tests of a search share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.search.stubs import Stubs


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    """Training that costs nothing, in place of the real one."""
    return Stubs().install(monkeypatch)


@pytest.fixture
def toy_files(toy: Path) -> Path:
    """The toy task and corpus, under a name that leaves `toy` to the settings made from them."""
    return toy
