"""The page of presets names all presets, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from endtask.config import Settings, preset_names
from endtask.config.messages import section_of
from endtask.config.section import PartSection
from endtask.weighting.interleave import automatic_rho1


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "presets.md").read_text(encoding="utf-8")


def all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name in model.model_fields:
        yield prefix + name
        below = section_of(model, name)
        if below is not None:
            yield from all_keys(below, f"{prefix}{name}.")
            if issubclass(below, PartSection):
                parts = map(below.registry.get, below.registry.names())
                yield from (f"{prefix}{name}.{key}" for part in parts for key in part.Config.model_fields)


def test_every_preset_and_task_is_named(page: str) -> None:
    names = {part for name in preset_names() for part in name.split(":")}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_every_setting_it_names_exists(page: str) -> None:
    keys = set(all_keys(Settings))
    rows = [line for line in page.splitlines() if line.startswith("|")]
    in_tables = {key for line in rows for key in re.findall(r"`([a-z0-9_]+\.[a-z0-9_.]+)`", line)}
    in_text = set(re.findall(r"`(?:--set )?([a-z0-9_]+\.[a-z0-9_.]+)(?:: [^`]*|=[^`]*)?`", page))
    assert len(in_tables) > 20
    named = {re.sub(r"^pretrain\.objectives\.\w+\.", "pretrain.objectives.", key) for key in in_tables | in_text}
    assert sorted(named - keys) == []


def test_the_rule_for_rho1_is_the_codes(page: str) -> None:
    rows = re.findall(r"^\| (?:under|up to|more).*$", page, flags=re.MULTILINE)
    told = [[int(cell) for cell in row.split("|")[2:5]] for row in rows]
    assert told == [
        [automatic_rho1(examples, "small"), automatic_rho1(examples, "medium"), automatic_rho1(examples, "large")]
        for examples in (999, 4999, 100_000, 100_001)
    ]
