"""The selector's scores against a slow oracle: one text at a time through autograd, whole gradients, dot products."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from endtask.encoders.batch import lay_out
from endtask.encoders.network import Network
from endtask.gradients.engine import masked_lm_losses, task_losses
from endtask.objectives.masking import mask_texts
from endtask.seeds import derive
from endtask.selectors.influence.runner import InfluenceRunner
from endtask.selectors.influence.scorer import CandidateUnits, Scorer, score_units
from endtask.selectors.influence.scoring_model import Fold
from tests.gradients.oracle import flat_gradients
from tests.selectors.influence.small import make_candidates, make_runner, small_settings, write_table

MAX_LENGTH = 16
VARIANTS: list[dict[str, Any]] = [
    {},
    {"measure": "dot", "candidate_batch": 3, "target_batch": 4, "targets": "dev", "recipe": "paper", "masks": 1},
    {"masks": 3, "layers": ["half", "last"]},
    {"architecture": "bert", "layers": ["embedding"]},
]


@pytest.mark.parametrize("values", VARIANTS)
def test_equal_to_a_loop_of_single_texts(tmp_path: Path, values: dict[str, Any]) -> None:
    write_table(tmp_path, make_candidates(15))
    work = make_runner(tmp_path, small_settings(values))
    work.fit()
    units = work.units(np.arange(len(work.statistics.rank)))
    scorer = Scorer(work.folds, units, memory=1 << 30)
    found = score_units(scorer, units, np.arange(units.count))
    expected = torch.cat([slow_scores(work, fold, units) for fold in work.folds], dim=1)
    assert found.shape == expected.shape == (units.count, scorer.columns)
    assert float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())
    assert float(expected.std()) > 0


def slow_scores(work: InfluenceRunner, fold: Fold, units: CandidateUnits) -> Tensor:
    network = fold.fitted_network().eval()
    ones, others = slow_candidates(work, fold, units, network), slow_targets(work, fold, network)
    if work.config.measure == "cosine":
        ones, others = (table / table.norm(dim=1, keepdim=True) for table in (ones, others))
    return ones @ others.T


def slow_candidates(work: InfluenceRunner, fold: Fold, units: CandidateUnits, network: Network) -> Tensor:
    """Each unit's gradient: the mean over its candidates and the masks."""
    lines = []
    for unit in range(units.count):
        members = units.order[unit * units.size : (unit + 1) * units.size]
        batch = lay_out(units.texts, members, network.layout(MAX_LENGTH))
        masking = replace(fold.masking, probability=work.config.score_mask_probability)
        masked = (mask_texts(batch, members, masking, derive(0, "mask", 0), turn) for turn in range(work.config.masks))
        each = [flat_gradients(network, one, masked_lm_losses, work.config.layers) for one in masked]
        lines.append(torch.stack(each).mean((0, 1)))
    return torch.stack(lines)


def slow_targets(work: InfluenceRunner, fold: Fold, network: Network) -> Tensor:
    """The gradient of every mini-batch of targets."""
    numbers = np.arange(len(fold.task.dev))
    labels = torch.tensor([work.task.labels.index(str(row.label)) for row in fold.task.dev])
    batch = replace(lay_out(fold.targets, numbers, network.layout(MAX_LENGTH)), labels=labels)
    if work.config.recipe == "paper":
        batch = mask_texts(batch, -1 - numbers, fold.masking, derive(0, "mask", 0))
    each = flat_gradients(network, batch, task_losses, work.config.layers)
    return torch.stack([part.mean(0) for part in each.split(work.config.target_batch)])


def test_a_step_on_a_helpful_text_lowers_the_loss_of_its_target(tmp_path: Path) -> None:
    """The sign: what the scores promise to first order is what a small step does."""
    work = make_runner(tmp_path, small_settings({"measure": "dot", "targets": "dev"}))
    work.fit()
    (fold,) = work.folds
    units = work.units(np.arange(len(work.statistics.rank)))
    scores = score_units(Scorer(work.folds, units, memory=1 << 30), units, np.arange(units.count))
    network = fold.fitted_network().eval()
    weight = dict(network.named_parameters())["encoder.layers.1.attn.Wo.weight"]
    gradients = slow_candidates(work, fold, units, network)
    before = target_losses(work, fold, network)
    for unit in (int(scores.mean(1).argmax()), int(scores.mean(1).argmin())):
        step = 1e-2 * gradients[unit].view_as(weight) / gradients[unit].norm()
        with torch.no_grad():
            weight -= step
        change = target_losses(work, fold, network) - before
        with torch.no_grad():
            weight += step
        promised = -1e-2 * scores[unit] / gradients[unit].norm()
        assert float(change.mean()) == pytest.approx(float(promised.mean()), rel=0.05)
        assert np.corrcoef(change.numpy(), promised.numpy())[0, 1] > 0.99


def target_losses(work: InfluenceRunner, fold: Fold, network: Network) -> Tensor:
    numbers = np.arange(len(fold.task.dev))
    labels = torch.tensor([work.task.labels.index(str(row.label)) for row in fold.task.dev])
    batch = replace(lay_out(fold.targets, numbers, network.layout(MAX_LENGTH)), labels=labels)
    with torch.no_grad():
        return task_losses(network, network(batch), batch)
