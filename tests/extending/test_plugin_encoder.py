"""An encoder from a user's file: a whole run, loading its model, and training it further."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.toy_run import toy_settings, write_toy

PLUGIN = Path(__file__).with_name("plugin_encoder.py")
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}


def endtask(*arguments: str | Path, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "ENDTASK_PLUGINS": str(PLUGIN) if plugin else ""}
    command = [sys.executable, "-m", "endtask", *map(str, arguments)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    tree = toy_settings(write_toy(folder), folder / "run", model={"architecture": "convolution", "kernel": 5, **SIZES})
    settings = folder / "settings.json"
    settings.write_text(json.dumps(tree))
    done = endtask("run", settings)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.long
def test_its_options_are_saved_with_the_model(run: Path) -> None:
    config = json.loads((run / "model" / "config.json").read_text())
    assert (config["model_type"], config["endtask_encoder"]) == ("endtask", "convolution")
    assert config["encoder_options"] == {"kernel": 5}


@pytest.mark.long
def test_its_model_predicts(run: Path) -> None:
    done = endtask("predict", run, "soup bread salt oven")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] in ("food", "space", "sport")


@pytest.mark.long
def test_without_the_plugin_its_model_is_not_loaded(run: Path) -> None:
    done = endtask("predict", run, "soup bread salt oven", plugin=False)
    assert done.returncode == 2
    assert "convolution" in done.stderr


def test_its_options_are_refused_for_other_encoders(tmp_path: Path, command: Callable[..., Answer]) -> None:
    tree = toy_settings(write_toy(tmp_path), tmp_path / "run", model={"architecture": "bert", "kernel": 5, **SIZES})
    (tmp_path / "settings.json").write_text(json.dumps(tree))
    done = command("run", tmp_path / "settings.json", "--plugin", PLUGIN)
    assert done.code == 2
    assert "model.kernel" in done.err


@pytest.mark.long
def test_a_checkpoint_of_it_can_be_opened(run: Path) -> None:
    from endtask.encoders.checkpoint import open_checkpoint
    from endtask.registry import load_plugin

    load_plugin(PLUGIN)
    checkpoint = open_checkpoint(str(run / "model"))
    assert checkpoint.architecture.name == "convolution"
    assert checkpoint.max_length == SIZES["max_position_embeddings"]
