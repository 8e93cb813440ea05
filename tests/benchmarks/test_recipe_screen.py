"""The plan of a screening: which fine-tunings follow which pre-training, and keys that it cannot vary."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.recipe.screen import Plan

PLANS = sorted((Path(__file__).parents[2] / "benchmarks" / "recipe" / "plans").glob("*.yaml"))
PLAN = """
skip_pretraining: {base: {}, masks: {pretrain.mask_probability: 0.3}}
skip_finetuning: {base: {}, slow: {finetune.learning_rate: 1.0e-4}}
starts: {slow: [base]}
seeds: [0, 1]
"""


def test_jobs_follow_the_starts(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    plan = Plan.read(tmp_path / "plan.yaml")
    found = {name: [(job.stage2, job.seed) for job in plan.jobs(name, tmp_path)] for name in plan.stage1}
    assert found == {"base": [("base", 0), ("base", 1), ("slow", 0), ("slow", 1)], "masks": [("base", 0), ("base", 1)]}


@pytest.mark.parametrize("key", ["finetune.max_length", "pretrain.weighting.rho1", "finetune.max_steps"])
def test_keys_that_are_not_stage_2s(tmp_path: Path, key: str) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.replace("finetune.learning_rate", key))
    with pytest.raises(SystemExit, match=f"skip_finetuning 'slow': {key} is not fine-tuning's"):
        Plan.read(tmp_path / "plan.yaml")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_our_own_plans_can_be_read(path: Path) -> None:
    plan = Plan.read(path)
    assert {start for starts in plan.starts.values() for start in starts} <= plan.stage1.keys()
    assert plan.starts.keys() <= plan.stage2.keys()
