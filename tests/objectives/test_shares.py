"""Batches of texts of similar lengths: every text has the same weight, whatever its batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import BatchSize
from endtask.encoders.network import Network
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification, JointTask
from endtask.tokenization.sampling import BatchPlan
from tests.tiny import make_labels, make_masking, make_network, make_packed

SIZES = st.one_of(st.integers(1, 9).map(str), st.integers(60, 200).map(lambda tokens: f"{tokens}tok"))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=80), SIZES, st.booleans())
def test_over_an_epoch_all_texts_and_all_tokens_count_alike(lengths: list[int], size: str, group: bool) -> None:
    plan = BatchPlan(np.array(lengths), BatchSize.parse(size), 0, "some", group_by_length=group)
    for step in range(2 * plan.batches_per_epoch):
        texts, tokens = plan.shares(step)
        batch = plan.positions(step)
        if not group:
            assert (texts, tokens) == (1.0, 1.0)
            continue
        # What one of a batch counts, times the batches: 1 / (all of them).
        assert texts / len(batch) / plan.batches_per_epoch == pytest.approx(1 / len(lengths))
        per_token = tokens / np.array(lengths)[batch].sum() / plan.batches_per_epoch
        assert per_token == pytest.approx(1 / sum(lengths))


def stream_of(folder: Path, network: Network, size: str, *, masked: bool) -> TextStream:
    masking = make_masking() if masked else None
    return TextStream("some", make_packed(folder), network, batch_size=BatchSize.parse(size), seed=0, masking=masking)


@pytest.mark.parametrize("size", ["5", "80tok"])
def test_the_mean_over_an_epoch_is_the_mean_over_all_texts(tmp_path: Path, size: str) -> None:
    network = make_network().eval()
    objective = Classification("task", stream_of(tmp_path, network, size, masked=False), make_labels())
    plan = objective.stream.plan
    sizes = {len(plan.positions(step)) for step in range(plan.batches_per_epoch)}
    assert len(sizes) > 1
    with torch.no_grad():
        losses = [objective.loss(network, objective.batch(step)).total for step in range(plan.batches_per_epoch)]
        everything = np.arange(len(objective.stream.texts))
        whole = objective.answered(objective.stream.lay_out(everything), everything)
        expected = objective.loss(network, whole).total
    torch.testing.assert_close(torch.stack(losses).mean(), expected)


def test_parts_of_the_loss_are_means_of_the_batch_and_its_total_is_not(tmp_path: Path) -> None:
    network = make_network().eval()
    stream = stream_of(tmp_path, network, "5", masked=True)
    masked, task = MaskedLM("mlm", stream), Classification("task", stream, make_labels())
    joint = JointTask(task, rho2=2.0)
    short, long = (min, max)
    for which in (short, long):
        step = which(range(stream.plan.batches_per_epoch), key=lambda number: stream.plan.shares(number)[1])
        texts, tokens = stream.plan.shares(step)
        assert (tokens < 0.9) if which is short else (tokens > 1.1)
        found = masked.loss(network, masked.batch(step))
        torch.testing.assert_close(found.total, tokens * found.parts["mlm"])
        both = joint.loss(network, joint.batch(step))
        expected = (2.0 * tokens * both.parts["mlm"] + texts * both.parts["task"]) / 3
        torch.testing.assert_close(both.total, expected)


def test_batches_that_mix_lengths_count_as_they_are(tmp_path: Path) -> None:
    network = make_network()
    network.fixed_shapes = True
    stream = stream_of(tmp_path, network, "5", masked=False)
    assert {stream.plan.shares(step) for step in range(5)} == {(1.0, 1.0)}
    assert (stream.batch(0).text_share, stream.batch(0).token_share) == (1.0, 1.0)
