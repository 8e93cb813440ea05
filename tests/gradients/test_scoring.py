"""Scores of a stream of batches come in order, also if the stream fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from endtask.encoders.batch import TextBatch
from endtask.encoders.device_context import DeviceContext
from endtask.gradients.engine import GradientEngine, masked_lm_losses
from endtask.gradients.scoring import prefetch, score_batches
from endtask.gradients.targets import products
from tests.gradients.batches import make_network, masked_batch

CPU = DeviceContext(torch.device("cpu"))


@given(numbers=st.lists(st.integers(0, 9), max_size=20))
def test_every_batch_is_scored_once_in_order(numbers: list[int]) -> None:
    found = score_batches(iter(numbers), torch.tensor, CPU)  # type: ignore[arg-type]
    assert [int(score) for score in found] == numbers


def test_scores_are_those_of_each_batch() -> None:
    network = make_network()
    engine = GradientEngine(network)
    batches = [masked_batch(network, [6, 9, 3], seed=seed) for seed in range(3)]
    targets = engine.gradients(batches[0], masked_lm_losses)

    def score(batch: TextBatch) -> torch.Tensor:
        return products(engine.gradients(batch, masked_lm_losses), targets)

    assert all(
        torch.equal(one, score(batch)) for one, batch in zip(score_batches(batches, score, CPU), batches, strict=True)
    )


def test_a_batch_that_cannot_be_made_is_an_error_where_it_is_wanted() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("no such text")

    found = score_batches(broken(), torch.tensor, CPU)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such text"):
        list(found)


def test_the_thread_ends_with_the_reader() -> None:
    stream = prefetch(iter(range(1000)), CPU)  # type: ignore[arg-type]
    assert next(stream) == 0
    stream.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("candidates")]
