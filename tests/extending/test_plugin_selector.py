"""A selector from a user's file: a whole run on the command line."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_selection
from tests.conftest import Answer
from tests.toy_run import toy_settings

PLUGIN = Path(__file__).with_name("plugin_selector.py")


def endtask(*arguments: object, plugin: bool = True, environment: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, so that the plug-in is unknown elsewhere."""
    variables = {**os.environ, "ENDTASK_PLUGINS": str(PLUGIN) if environment else "", "OMP_NUM_THREADS": "1"}
    words = [*map(str, arguments), *(("--plugin", str(PLUGIN)) if plugin else ())]
    command = [sys.executable, "-m", "endtask", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def write_settings(path: Path, toy: Path, output: Path, **select: Any) -> Path:
    tree = toy_settings(toy, output, select={"name": "perplexity", "budget": "20%", **select})
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def perplexities(run: Path) -> list[float]:
    selected = sorted(read_selection(run / "select" / SELECTION), key=lambda item: item.rank)
    assert [item.rank for item in selected] == list(range(1, len(selected) + 1))
    assert all(item.reason.startswith(f"perplexity: {math.exp(-item.score):.1f}, rank") for item in selected)
    return [math.exp(-item.score) for item in selected]


@pytest.mark.long
def test_a_run_from_start_to_end(toy: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run", order=4)
    ended = endtask("run", settings, "--quiet")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "run" / "model" / "config.json").exists()
    assert (tmp_path / "run" / "report.html").exists()
    found = perplexities(tmp_path / "run")
    assert found == sorted(found)
    manifest = json.loads((tmp_path / "run" / "select" / "manifest.json").read_text())
    assert (manifest["settings"]["select"]["name"], manifest["settings"]["select"]["order"]) == ("perplexity", 4)

    again = endtask("run", tmp_path / "run", "--dry-run", plugin=False, environment=True)
    assert again.returncode == 0, again.stderr
    assert "to do" not in again.stdout, "the environment variable loads the same plug-in"


@pytest.mark.long
def test_a_run_folder_does_not_bring_its_code(toy: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    ended = endtask("run", settings, "--until", "read", plugin=False)
    assert ended.returncode == 2
    assert "there is no selector 'perplexity'" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ({"oder": 4}, "'select.oder'"),
        ({"order": 1}, "'select.order'"),
        ({"epochs": 3}, "'select.epochs'"),
    ],
)
def test_wrong_options_are_one_line(
    toy: Path, tmp_path: Path, command: Callable[..., Answer], select: dict[str, Any], said: str
) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run", **select)
    ended = command("check", settings, "--plugin", PLUGIN)
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
