"""Settings that came later do not unmake the stages of older runs."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.config import Settings, resolve
from endtask.pipeline.stages import LATER_KEYS, keys_read, settings_read

TAPT = {"weighting": "equal", "objectives": {"tapt": {"kind": "mlm", "texts": "task"}}}


@pytest.mark.parametrize("section", sorted(LATER_KEYS))
def test_at_their_usual_values_they_are_left_out(section: str) -> None:
    stage = {"task": "read", "tokenizer": "pack", "train": "pretrain", "finetune": "finetune"}[section]
    read = settings_read(stage, Settings())[section]
    usual = Settings().model_dump(mode="json")[section]
    assert not LATER_KEYS[section].keys() & read.keys()
    assert {key: usual[key] for key in LATER_KEYS[section]} == LATER_KEYS[section], "the values are the defaults"


@pytest.mark.parametrize(
    ("tree", "section", "key"),
    [
        ({"train": TAPT}, "train", "objectives"),
        ({"pretrain": {"clip_heads_apart": True}}, "train", "clip_heads_apart"),
        ({"pretrain": {"weighting": "meta"}}, "train", "meta"),
        ({"finetune": {"keep_better": True, "reset_head": False}}, "finetune", "keep_better"),
    ],
)
def test_other_values_count(tree: dict[str, Any], section: str, key: str) -> None:
    stage = {"train": "pretrain", "finetune": "finetune"}[section]
    assert key in settings_read(stage, resolve(tree))[section]
    assert key not in settings_read(stage, Settings())[section]


def test_the_domain_counts_where_it_is_read() -> None:
    dapt = {"weighting": "equal", "objectives": {"dapt": {"kind": "mlm", "texts": "domain"}}}
    assert "domain" in keys_read("select", resolve({"train": dapt}))
    assert "domain" not in keys_read("select", resolve({"train": TAPT}))


def test_the_metric_counts_in_stage_1_where_it_chooses_weights() -> None:
    assert "evaluate.metric" in keys_read("pretrain", resolve({"pretrain": {"eval_steps": 5}}))
    assert "evaluate.metric" not in keys_read("pretrain", Settings())
