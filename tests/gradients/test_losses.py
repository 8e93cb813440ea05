"""The loss of each text equals its loss when it is read alone."""

from __future__ import annotations

import pytest
import torch

from endtask.encoders.batch import BatchShape
from endtask.gradients.engine import masked_lm_losses, task_losses
from tests.gradients.batches import labelled_batch, make_network, masked_batch
from tests.gradients.oracle import alone
from tests.tiny import ARCHITECTURES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_text_has_the_loss_it_has_alone(architecture: str) -> None:
    network = make_network(architecture, dtype=torch.float32)
    for batch, losses in (
        (masked_batch(network, [6, 9, 3, 7]), masked_lm_losses),
        (labelled_batch(network, [6, 9, 3, 7]), task_losses),
    ):
        together = losses(network, network(batch), batch)
        single = [alone(batch, text) for text in range(4)]
        assert together.tolist() == pytest.approx(
            [losses(network, network(one), one).item() for one in single], rel=1e-5
        )
        assert (together > 0).all()


def test_a_masked_text_has_the_mean_that_training_uses() -> None:
    network = make_network()
    batch = masked_batch(network, [9, 9], probability=0.5)
    single = alone(batch, 1)
    expected = network.masked_lm_loss(network(single), single).item()
    assert masked_lm_losses(network, network(batch), batch)[1].item() == pytest.approx(expected)


def test_padding_texts_have_no_loss() -> None:
    network, fixed_shape = make_network(), BatchShape(tokens=20, texts=5, masked=16)
    masked, labelled = (make(network, [6, 9], fixed_shape=fixed_shape) for make in (masked_batch, labelled_batch))
    assert masked_lm_losses(network, network(masked), masked)[2:].tolist() == [0, 0, 0]
    assert task_losses(network, network(labelled), labelled)[2:].tolist() == [0, 0, 0]
