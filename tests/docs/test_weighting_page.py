"""The settings that the page on weighting shows are what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tartan.cells import base_settings, cells
from endtask.config import load_settings
from endtask.experiments import check_study
from endtask.experiments.trial_runs import make_plan
from endtask.experiments.variants import listed_variants

PAGE = Path(__file__).resolve().parents[2] / "docs" / "weighting.md"


def shown(start: str) -> Any:
    """The settings of the block that starts so."""
    block = re.search(rf"```yaml\n({start}.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return yaml.safe_load(block[1])


def test_the_end_that_is_recommended_is_the_one_that_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump({**shown("preset: mt-tartan"), "task": {"path": "task"}, "output_dir": "out"}))
    found = load_settings(path)
    base = base_settings("sciie", "checkpoint", tmp_path, steps=300)
    asked = check_study({"variants": cells("tapt", "checkpoint", base.budget), "seeds": [0]}, "cells")
    (measured,) = (cell for cell in listed_variants(base, asked, "cells") if cell.name == "mt-tapt-anew")
    kept = {"epochs", "early_stopping_patience", "max_length", "seeds"}
    assert found.finetune.model_dump(exclude=kept) == measured.settings.finetune.model_dump(exclude=kept)
    assert found.pretrain.eval_steps is found.pretrain.early_stopping_patience is None


def test_the_variants_of_the_ways_to_train() -> None:
    given = {"task": {"path": "task"}, "corpus": {"sources": [{"path": "texts"}]}, "budget": "300steps"}
    settings = load_settings(preset="mt-tartan-scratch", given={**given, "output_dir": "out"})
    tree = shown("variants:")
    plan = make_plan(settings, check_study(tree), "study.yaml")
    cells = {name: plan.variant(name).settings for name in tree["variants"]}
    assert {name: (list(one.used_objectives), one.pretrain.weighting) for name, one in cells.items()} == {
        "mt": (["task", "tapt"], "equal"),
        "meta": (["task", "tapt"], "meta"),
        "mt-both": (["task", "dapt", "tapt"], "equal"),
        "meta-both": (["task", "dapt", "tapt"], "meta"),
        "mt-domain": (["task", "dapt"], "equal"),
        "meta-domain": (["task", "dapt"], "meta"),
        "tapt": (["tapt"], "equal"),
        "plain": (["tapt"], "equal"),
        "dapt": (["dapt"], "equal"),
        "dapt-tapt": (["dapt", "tapt"], "sequence"),
    }
    assert {name for name, one in cells.items() if one.skip_pretraining} == {"plain"}
    before = [cells[name] for name in ("tapt", "dapt", "dapt-tapt")]
    assert all(one.finetune.reset_head and one.pretrain.eval_steps is None for one in before)
    assert [str(one.budget) for one in before] == ["300steps", "300steps", "600steps"]
