"""Pages show the values of the results files; no value is typed by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def maker(repository: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location("make_results", repository / "docs" / "make_results.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_pages_are_current(maker: ModuleType) -> None:
    shown = ""
    for page in maker.pages():
        text = page.read_text(encoding="utf-8")
        shown += text
        assert maker.filled(text) == text, "run `make docs`"
    assert [name for name in maker.SECTIONS if f"<!-- results: {name} -->" not in shown] == []


def test_the_pictures_are_current(maker: ModuleType) -> None:
    drawn = maker.pictures()
    assert drawn
    for path, picture in drawn.items():
        assert path.read_text(encoding="utf-8") == picture, "run `make docs`"
