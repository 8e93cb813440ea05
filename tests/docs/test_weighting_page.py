"""The settings on the weighting page have the effect that it describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from endtask.config import load_settings
from endtask.experiments import check_study
from endtask.experiments.trial_runs import make_plan
from tests.studies.test_study_files import STUDIES, tasks_of


def shown(repository: Path, start: str) -> Any:
    """The settings of the block that starts so, on the page on weighting, wherever it is."""
    (page,) = (path for path in (repository / "docs").rglob("weighting.md") if path.parent.name != "results")
    block = re.search(rf"```yaml\n({start}.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return yaml.safe_load(block[1])


def test_the_recommended_fine_tuning_is_the_measured_one(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    tree = {**shown(repository, "preset: mt-tartan"), "task": {"path": "task"}, "output_dir": "out"}
    path.write_text(yaml.safe_dump(tree))
    found = load_settings(path)
    (study,) = (path for path in STUDIES if path.stem == "tartan-checkpoint")
    first = tasks_of(study, tmp_path)[0]
    measured = make_plan(first.settings, first.study, str(study)).variant("mt-tapt-anew").settings
    other = {"epochs", "early_stopping_patience", "max_length", "seeds"}
    assert found.finetune.model_dump(exclude=other) == measured.finetune.model_dump(exclude=other)
    assert found.pretrain.eval_steps is found.pretrain.early_stopping_patience is None


def test_the_variants_of_the_ways_to_train(repository: Path) -> None:
    given = {"task": {"path": "task"}, "corpus": {"sources": [{"path": "texts"}]}, "budget": "300steps"}
    settings = load_settings(preset="mt-tartan-scratch", given={**given, "output_dir": "out"})
    tree = shown(repository, "variants:")
    plan = make_plan(settings, check_study(tree), "study.yaml")
    variants = {name: plan.variant(name).settings for name in tree["variants"]}
    assert {name: (list(each.used_objectives), each.pretrain.weighting.name) for name, each in variants.items()} == {
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
    assert {name for name, each in variants.items() if each.skip_pretraining} == {"plain"}
    before = [variants[name] for name in ("tapt", "dapt", "dapt-tapt")]
    assert all(each.finetune.head == "new" and each.pretrain.eval_steps is None for each in before)
    assert [str(each.budget) for each in before] == ["300steps", "300steps", "600steps"]
