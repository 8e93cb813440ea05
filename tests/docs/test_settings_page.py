"""The page of settings agrees with the code."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from endtask.config import Settings
from endtask.config.messages import section_of
from endtask.config.section import PartSection


@pytest.fixture(scope="module")
def generator(repository: Path) -> dict[str, Any]:
    return runpy.run_path(str(repository / "docs" / "make_settings_page.py"))


def plain_keys(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """The keys of a section, of the sections below it and of their parts; a section that occurs twice counts once."""
    if model in seen:
        return
    seen.add(model)
    for name in model.model_fields:
        below = section_of(model, name)
        if below is None:
            yield name
            continue
        yield from plain_keys(below, seen)
        if issubclass(below, PartSection):
            parts = map(below.registry.get, below.registry.names())
            yield from (key for part in parts for key in own_keys(part, seen))


def own_keys(part: Any, seen: set[type[BaseModel]]) -> Iterator[str]:
    if part.Config not in seen:
        seen.add(part.Config)
        yield from part.Config.model_fields


def test_the_committed_page_is_current(generator: dict[str, Any]) -> None:
    written = generator["PAGE"].read_text(encoding="utf-8")
    assert written == generator["page"](), "docs/reference/settings.md is out of date: run `make docs`"


def test_every_setting_has_one_row(generator: dict[str, Any]) -> None:
    rows = [line for line in generator["page"]().splitlines() if line.startswith("| `") and line.count(" | ") == 3]
    keys = [row.split("`")[1].rpartition(".")[2] for row in rows]
    assert sorted(keys) == sorted(plain_keys(Settings, set()))
    assert not any(row.endswith("|  |") for row in rows)


def test_unions_and_lists_are_told_in_words(generator: dict[str, Any]) -> None:
    page = generator["page"]()
    assert "| `retrieve.top_k` | whole number or `auto`, `auto_large` | `auto` |" in page
    assert "| `finetune.seeds` | list of: whole number | `[0, 1, 2]` |" in page
    assert "| `corpus.sources[].path` | text | (required) |" in page
    assert "| `pretrain.weighting.rho1` | whole number or `inf`, `auto` | `19` |" in page
    assert "| `pretrain.batch_size` | batch size | `4096tok` |" in page
    assert "| `finetune.batch_size` | batch size | `32` |" in page
    assert "| `finetune.learning_rate` | number or list of: number | " in page
