"""Contradictions between training settings raise errors that name the keys."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.config import Settings, resolve
from endtask.errors import InputError


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"pretrain": {"weighting": {"rho1": "inf", "rho1_end": 3}}},
            "'pretrain.weighting.rho1_end': needs a rho1 to start from",
        ),
        ({"pretrain": {"weighting": {"rho1_end": -1}}}, "rho1_end"),
        ({"pretrain": {"warmup_steps": 1.5}}, "pretrain.warmup_steps"),
        ({"finetune": {"head_learning_rate": 0.0}}, "finetune.head_learning_rate"),
        ({"finetune": {"rdrop": -1.0}}, "finetune.rdrop"),
        ({"finetune": {"rdrop": 1.0}, "model": {"dropout": 0.0}}, "'finetune.rdrop': compares answers under dropout"),
        ({"finetune": {"lr_scheduler_type": "warmup_stable"}}, "finetune.lr_scheduler_type"),
        ({"pretrain": {"seed": -1}}, "pretrain.seed"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(changes)
    assert said in str(caught.value)


def test_all_knobs_are_off_by_default() -> None:
    settings = Settings()
    train, finetune = settings.pretrain, settings.finetune
    assert (train.seed, train.weighting.rho1_end) == (None, None)
    for phase in (train, finetune):
        assert (phase.head_learning_rate, phase.lr_scheduler_type) == (None, "linear")
    assert finetune.rdrop == 0


def test_rho1_may_end_elsewhere_when_it_is_automatic() -> None:
    assert resolve({"pretrain": {"weighting": {"rho1": "auto", "rho1_end": 3}}}).pretrain.weighting.rho1_end == 3
