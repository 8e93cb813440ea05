"""Heads fitted to features: their outputs, and ignored rows."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta import head as meta_head
from endtask.weighting.meta.head import Classes, HeadTask, LabelSets, Scores, fit_closed_form, fit_head


def features_and_answers(rows: int = 40, width: int = 6) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    features = torch.randn(rows, width, generator=random)
    return features, features @ torch.randn(width, 3, generator=random)


def answers_of(task: HeadTask, truth: Tensor) -> Tensor:
    if isinstance(task, Classes):
        return truth.argmax(-1)
    return (truth > 0).long() if isinstance(task, LabelSets) else truth[:, 0]


KINDS = [Classes(3), LabelSets(3), Scores()]


@pytest.mark.parametrize("task", KINDS, ids=["classes", "labels", "scores"])
@pytest.mark.parametrize("head", ["closed_form", "adamw"])
def test_a_fitted_head_knows_what_others_guess(
    task: HeadTask, head: Literal["closed_form", "adamw"], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"RIDGE": 0.01, "HEAD_STEPS": 300, "HEAD_LEARNING_RATE": 1e-2, "HEAD_WEIGHT_DECAY": 0.0}
    for name, value in changes.items():
        monkeypatch.setattr(meta_head, name, value)
    features, truth = features_and_answers(80)
    targets = answers_of(task, truth)
    outputs = fit_head(features[:60], targets[:60], task, MetaConfig(head=head), seed=0)(features[60:])
    assert outputs.shape == (20, task.outputs)
    guess = task.start(task.rows(targets)[0].mean(0))[0].expand(20, -1)
    assert task.loss(outputs, targets[60:]) < 0.6 * task.loss(guess, targets[60:])
    assert not outputs.requires_grad


@pytest.mark.parametrize("task", KINDS, ids=["classes", "labels", "scores"])
@pytest.mark.parametrize("head", ["closed_form", "adamw"])
def test_rows_of_padding_change_nothing(task: HeadTask, head: str) -> None:
    features, truth = features_and_answers()
    targets = answers_of(task, truth)
    settings = MetaConfig.model_validate({"head": head})
    padding = torch.full((5, *targets.shape[1:]), task.ignored).to(targets.dtype)
    padded_features = torch.cat([features, 100 * torch.ones(5, features.shape[1])])
    padded_targets = torch.cat([targets, padding])
    plain = fit_head(features, targets, task, settings, seed=0)(features)
    padded = fit_head(padded_features, padded_targets, task, settings, seed=0)(features)
    assert padded.allclose(plain, atol=1e-4)
    more = torch.cat([plain, torch.ones(5, task.outputs)])
    assert task.loss(more, padded_targets).allclose(task.loss(plain, targets))


def test_a_large_penalty_leaves_the_shares_of_the_classes() -> None:
    features, truth = features_and_answers()
    targets = truth.argmax(-1)
    head = fit_closed_form(features, targets, Classes(3), ridge=1e9)
    shares = torch.bincount(targets, minlength=3) / len(targets)
    assert head(features).softmax(-1).allclose(shares.expand(40, 3), atol=0.05)


@pytest.mark.parametrize("rows", [1, 2])
def test_few_equal_rows_and_a_class_that_never_comes_are_no_trouble(rows: int) -> None:
    features = torch.ones(rows, 4)
    head = fit_head(features, torch.zeros(rows, dtype=torch.int64), Classes(5), MetaConfig(), seed=0)
    outputs = head(torch.randn(3, 4))
    assert outputs.isfinite().all()
    assert outputs.argmax(-1).eq(0).all()


def test_no_row_that_counts_gives_finite_numbers() -> None:
    targets = torch.full((4,), -100)
    head = fit_head(torch.randn(4, 3), targets, Classes(2), MetaConfig(), seed=0)
    assert head(torch.randn(2, 3)).isfinite().all()
    assert Classes(2).loss(torch.randn(4, 2), targets) == 0
    assert Scores().loss(torch.randn(4, 1), torch.full((4,), math.nan)) == 0


def test_the_seed_decides_where_steps_start() -> None:
    features, truth = features_and_answers()
    settings = MetaConfig(head="adamw")
    first, again, other = (
        fit_head(features, truth.argmax(-1), Classes(3), settings, seed=seed)(features) for seed in (0, 0, 1)
    )
    assert first.equal(again)
    assert not first.allclose(other)
    before = torch.get_rng_state()
    fit_head(features, truth.argmax(-1), Classes(3), settings, seed=3)
    assert torch.get_rng_state().equal(before)  # dropout has its own
