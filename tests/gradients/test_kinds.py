"""Gradients of the task losses of every task type, against single texts through autograd."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from endtask.gradients.engine import GradientEngine, task_losses
from endtask.gradients.targets import products
from tests.gradients.oracle import flat_gradients, relative_error
from tests.objectives.test_kinds import KINDS, make_network, make_objective


@pytest.mark.parametrize("layers", [("last",), ("half", "embedding")], ids=" ".join)
@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_has_the_gradient_of_its_own_loss(
    kind: str, architecture: str, layers: tuple[str, ...], tmp_path: Path
) -> None:
    network = make_network(kind, architecture).double()
    network.dtype = torch.float64
    batch = make_objective(kind, network, tmp_path).batch(0)
    flat = flat_gradients(network, batch, task_losses, layers)
    assert bool((flat.norm(dim=1) > 0).all())
    found = GradientEngine(network, layers).gradients(batch, task_losses)
    assert relative_error(products(found, found), flat, flat) < 1e-8


@pytest.mark.parametrize("kind", KINDS)
def test_losses_of_texts_make_up_the_loss_of_the_batch(kind: str, tmp_path: Path) -> None:
    network = make_network(kind, "lean")
    network.fixed_shapes = True  # the batch has texts of padding, which cost nothing
    objective = make_objective(kind, network, tmp_path)
    batch = objective.batch(1)
    each = task_losses(network, network(batch), batch)
    assert len(each) > batch.texts
    assert bool((each[batch.texts :] == 0).all())
    words = torch.ones(batch.texts)
    if kind == "token_classification":
        assert batch.weights is not None
        words = torch.bincount(batch.text_ids[batch.weights > 0], minlength=batch.texts)[: batch.texts].float()
    mean = (each[: batch.texts] * words).sum() / words.sum()
    assert mean.item() == pytest.approx(objective.loss(network, batch).total.item(), rel=1e-5)
