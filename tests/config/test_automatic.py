"""Presets by the machine, and `model: auto`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings, automatic, load_settings
from endtask.config.automatic import MINI, automatic_preset, starting_point
from endtask.config.overrides import with_values


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets the number of GPUs, and whether endtask-mini is there."""

    def set_machine(*, gpus: int = 0, mini: bool = True) -> None:
        monkeypatch.setattr(automatic, "gpu_names", lambda: ["GPU"] * gpus)
        monkeypatch.setattr(automatic, "package_model", lambda path: Path() if mini and path == MINI else None)

    return set_machine


@pytest.mark.parametrize(
    ("gpus", "tree", "preset"),
    [
        (0, {}, "laptop"),
        (0, {"budget": "1h"}, "laptop"),
        (1, {}, "gpu-long"),
        (1, {"budget": "5min"}, "gpu-long"),
        (1, {"budget": "30s"}, "laptop"),
        (1, {"budget": "2000steps"}, "gpu-long"),
        (1, {"budget": "five"}, "gpu-long"),
        (1, {"device": "cpu"}, "laptop"),
        (0, {"finetune": {"epochs": 3}, "pretrain": {"max_length": 64}}, "laptop"),
        (0, {"model": {"dropout": 0.2}}, "laptop"),
        (0, {"model": {"size": "mini"}}, None),
        (0, {"model": {"path": "bert"}}, None),
        (0, {"model": {"path": None}}, None),
        (0, {"model": "bert"}, None),
        (0, {"tokenizer": {"vocab_size": 500}}, None),
        (0, {"tokenizer": {"entity_markers": ["[["]}}, "laptop"),
    ],
)
def test_the_preset_of_settings_that_name_none(machine: Any, gpus: int, tree: dict[str, Any], preset: str) -> None:
    machine(gpus=gpus)
    assert automatic_preset(tree) == preset
    if "five" not in tree.values() and preset:
        assert load_settings(given=tree) == load_settings(preset=preset, given=tree)


@pytest.mark.parametrize(
    ("gpus", "options", "path"),
    [
        (0, {}, MINI),
        (1, {}, None),
        (0, {"preset": "laptop"}, MINI),
        (1, {"preset": "laptop"}, None),
        (1, {"preset": "laptop", "given": {"budget": "30s"}}, MINI),
        (1, {"preset": "laptop", "overrides": ["device=cpu"]}, MINI),
        (0, {"preset": "gpu"}, None),
        (0, {"preset": "gpu", "given": {"model": "auto"}}, MINI),
        (0, {"preset": "gpu", "overrides": ["model=auto"]}, MINI),
        (0, {"preset": "laptop", "overrides": ["model.size=mini"]}, None),
        (0, {"preset": "laptop", "given": {"tokenizer": {"kind": "bpe"}}}, None),
        (0, {"preset": "laptop", "given": {"model": {"path": "mine"}}}, "mine"),
        (0, {"given": {"model": {"path": "auto", "size": "mini"}}}, MINI),
        (0, {"preset": "tlm-small"}, None),
    ],
)
def test_what_the_encoder_starts_from(machine: Any, gpus: int, options: dict[str, Any], path: str | None) -> None:
    machine(gpus=gpus)
    assert load_settings(**options).model.path == path


def test_without_the_shipped_encoder_weights_are_random(machine: Any) -> None:
    machine(mini=False)
    chosen = load_settings(preset="laptop")
    assert (chosen.model.path, chosen.model.size) == (None, "tiny")


def test_settings_that_are_all_there_are_read_back(machine: Any, tmp_path: Path) -> None:
    machine()
    file = tmp_path / "settings.json"
    chosen = load_settings(preset="laptop")
    file.write_text(chosen.model_dump_json())
    machine(gpus=1, mini=False)
    assert load_settings(file) == chosen


def test_sizes_of_a_variant_replace_the_automatic_checkpoint(machine: Any) -> None:
    machine()
    laptop = load_settings(preset="laptop")
    assert with_values(laptop, {"model.size": "mini"}, "study").model.path is None
    assert with_values(laptop, {"model.dropout": 0.0}, "study").model.path == MINI
    assert with_values(Settings(), {"model": "auto"}, "study").model.path == MINI
    with_own = load_settings(given={"model": {"path": "mine"}})
    assert with_values(with_own, {"model.size": "mini"}, "study").model.path == "mine"


def test_the_starting_point_is_told(machine: Any) -> None:
    machine()
    assert "endtask-mini" in starting_point(load_settings())
    assert starting_point(load_settings(given={"model": {"path": "mine"}})).endswith("mine")
    assert starting_point(load_settings(given={"model": {"size": "mini"}})).endswith("random weights: lean, mini")
