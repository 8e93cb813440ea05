"""A comparison with real training on the toy data."""

from __future__ import annotations

from pathlib import Path

import pytest

import endtask
from endtask.config import load_settings, resolve
from endtask.experiments import compare
from endtask.experiments.stage_reuse import REUSED_FROM
from endtask.io.stage_files import read_manifest
from endtask.reporting.page import summary
from tests.toy_run import results, toy_settings

TREE = {
    "variants": {"slow": {}, "fast": {"pretrain.learning_rate": 3e-2}},
    "seeds": [1],
    "finetune_seeds": [0, 1],
    "baselines": ["majority", "tfidf", "no_corpus"],
}


@pytest.mark.slow
def test_a_trial_is_the_run_it_would_be_alone(toy: Path, tmp_path: Path) -> None:
    settings = resolve(toy_settings(toy, tmp_path / "out", budget="4steps"))
    outcome = compare(settings, TREE)
    assert [(row.name, row.models) for row in outcome.rows] == [
        ("slow", 2),
        ("fast", 2),
        ("majority", 1),
        ("tfidf", 1),
        ("no_corpus", 2),
    ]
    folder = tmp_path / "out" / "variants" / "fast" / "seed-1"
    asked = load_settings(folder / "settings.yaml")
    assert (asked.pretrain_seed, asked.pretrain.learning_rate) == (1, 3e-2)
    alone = endtask.run(asked.model_copy(update={"output_dir": str(tmp_path / "alone")}), until="evaluate")
    assert results(folder) == results(alone.folder)
    own = [stage for stage in ("read", "retrieve", "select", "pack") if REUSED_FROM not in manifest(folder / stage)]
    assert own == []

    row, run = outcome.row("fast"), outcome.trials["fast"][0]
    seeds = summary(folder)["seeds"]
    assert run.dev == tuple(seed["dev"] for seed in seeds)
    scores = [seed["score"] for seed in seeds]
    assert row.score is not None
    assert row.score.mean == pytest.approx(sum(scores) / 2)
    assert run.cost.flops == summary(folder)["cost"]["total"]["flops"]
    assert run.cost.text_bytes == summary(folder)["selection"]["bytes"] > 0

    without = tmp_path / "out" / "variants" / "no_corpus" / "seed-1"
    tokenizer = Path("pack") / "tokenizer" / "tokenizer.json"
    assert (without / tokenizer).read_bytes() == (folder / tokenizer).read_bytes()
    assert summary(without)["selection"]["bytes"] == 0
    by_dev = compare(settings, {**TREE, "by": "dev"})  # nothing is trained again
    for variant in ("slow", "fast"):
        expected = summary(tmp_path / "out" / "variants" / variant / "seed-1")["seeds"]
        assert outcome.trials[variant][0].dev == tuple(seed["dev"] for seed in expected)
        score = by_dev.row(variant).score
        assert score is not None
        assert score.mean == pytest.approx(by_dev.row(variant).dev.mean)  # type: ignore[union-attr]


def manifest(folder: Path) -> dict[str, object]:
    found = read_manifest(folder)
    assert found is not None
    return found
