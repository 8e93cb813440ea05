"""Scores at a re-selection, against single texts through autograd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from endtask.config import BatchSize
from endtask.encoders.batch import lay_out
from endtask.encoders.network import TASK, TLM_TASK, Network
from endtask.errors import TrainingError
from endtask.gradients.engine import masked_lm_losses, task_losses
from endtask.objectives.masking import mask_texts
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification
from endtask.training import reselect as reselect_scores
from endtask.training.reselect import CandidateScorer
from tests.gradients.oracle import flat_gradients
from tests.objectives.test_kinds import make_network as make_network_of
from tests.objectives.test_kinds import make_objective
from tests.tiny import make_labels, make_masking, make_network, make_packed, shake

from .conftest import CPU

WHICH, ROWS, SEED = np.array([1, 4, 5, 9, 20, 17]), np.array([0, 2, 3, 11]), 8


@pytest.fixture(autouse=True)
def two_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the few rows two count."""
    monkeypatch.setattr(reselect_scores, "TOP_TARGETS", 2)


def make_scores(folder: Path, network: Network, head: str = TASK) -> CandidateScorer:
    texts = make_packed(folder / "rows", 12, seed=5)
    stream = TextStream("rows", texts, network, batch_size=BatchSize.parse("4"), seed=0)
    validation = Classification("rows", stream, make_labels(12))
    return CandidateScorer(network, CPU, make_packed(folder / "texts"), validation, make_masking(), 24, head)


def by_autograd(scores: CandidateScorer, network: Network) -> np.ndarray:
    batch = lay_out(scores.candidates, WHICH, network.layout(16))
    readings = [mask_texts(batch, WHICH, scores.masking, SEED, turn) for turn in range(reselect_scores.MASKS)]
    each = [flat_gradients(network, one, masked_lm_losses, ("last",)) for one in readings]
    one = torch.stack(each).mean(0)
    rows = scores.validation.answered(lay_out(scores.validation.stream.texts, ROWS, network.layout(16)), ROWS)
    other = flat_gradients(network, rows, lambda *given: task_losses(*given, head=scores.head), ("last",))
    one, other = (torch.nn.functional.normalize(side, dim=1) for side in (one, other))
    table = (one @ other.T).detach().numpy()
    usual = (table - table.mean(0)) / table.std(0)
    return np.asarray(np.sort(usual, axis=1)[:, -2:].mean(1))


@pytest.mark.parametrize(
    ("architecture", "head", "masks"), [("lean", TASK, 1), ("lean", TASK, 2), ("bert", TASK, 2), ("lean", TLM_TASK, 2)]
)
def test_scores_are_those_of_single_texts(
    tmp_path: Path, architecture: str, head: str, masks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reselect_scores, "MASKS", masks)
    network = shake(make_network(architecture, dropout=0.3, tlm_head=True)).double()
    network.dtype = torch.float64
    scores = make_scores(tmp_path, network, head)
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = scores.scores(WHICH, ROWS, SEED)
    assert network.training
    assert all(weight.requires_grad and weight.grad is None for weight in network.parameters())
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())
    assert found.tokens > masks * scores.candidates.lengths[WHICH].sum()
    np.testing.assert_allclose(found.values, by_autograd(scores, network.eval()), rtol=1e-6, atol=1e-8)


def test_broken_weights_have_no_scores(tmp_path: Path) -> None:
    network = make_network()
    with torch.no_grad():
        next(network.encoder.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="not finite"):
        make_scores(tmp_path, network).scores(WHICH, ROWS, SEED)


@pytest.mark.parametrize("kind", ["regression", "multilabel", "token_classification"])
def test_rows_of_every_kind_judge(tmp_path: Path, kind: str) -> None:
    network = make_network_of(kind, "lean").double()
    network.dtype = torch.float64
    usual = make_scores(tmp_path / "usual", network)
    scores = replace(usual, validation=make_objective(kind, network, tmp_path / "own"))
    found = scores.scores(WHICH, ROWS, SEED).values
    assert found == pytest.approx(by_autograd(scores, network), abs=1e-6)
    assert not np.allclose(found, found[0])
