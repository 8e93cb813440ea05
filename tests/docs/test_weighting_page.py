"""The cells that the page on weighting shows are what it says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from endtask.compare.comparison import check_comparison
from endtask.compare.plan import make_plan
from endtask.settings import load_settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "weighting.md"


def test_the_cells_of_the_ways_to_train() -> None:
    block = re.search(r"```yaml\n(cells:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    given = {"task": {"path": "task"}, "corpus": {"sources": [{"path": "texts"}]}, "budget": "300steps"}
    settings = load_settings(preset="mt-tartan-scratch", given={**given, "output_dir": "out"})
    tree = yaml.safe_load(block[1])
    plan = make_plan(settings, check_comparison(tree), "cells.yaml")
    cells = {name: plan.cell(name).settings for name in tree["cells"]}
    assert {name: (list(one.used_objectives), one.train.weighting) for name, one in cells.items()} == {
        "mt": (["task", "tapt"], "equal"),
        "meta": (["task", "tapt"], "meta"),
        "mt-both": (["task", "dapt", "tapt"], "equal"),
        "meta-both": (["task", "dapt", "tapt"], "meta"),
        "tapt": (["tapt"], "equal"),
        "dapt": (["dapt"], "equal"),
        "dapt-tapt": (["dapt", "tapt"], "sequence"),
    }
    before = [cells[name] for name in ("tapt", "dapt", "dapt-tapt")]
    assert all(one.finetune.reset_head and one.train.eval_steps is None for one in before)
    assert [str(one.budget) for one in before] == ["300steps", "300steps", "600steps"]
