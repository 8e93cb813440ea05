"""Batches of a few selected texts, with one shape where kernels are recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from endtask.config import BatchSize
from endtask.experiments.few_shot.trial_rows import SelectedTexts
from endtask.tokenization.packed_texts import write_packed
from endtask.tokenization.sampling import BatchPlan
from tests.tiny import make_network


@pytest.mark.parametrize("fixed", [False, True])
def test_chosen_texts_fit_whatever_the_others_are_like(tmp_path: Path, fixed: bool) -> None:
    """The chosen ones are the longest: a batch of them is larger than any usual one."""
    lengths = np.array([3] * 200 + [12] * 10)
    texts = write_packed((([2, *[7] * (length - 2), 3], length) for length in lengths.tolist()), 50, tmp_path)
    network = make_network("lean")
    network.fixed_shapes = fixed
    rows = np.arange(195, 210)
    plan = BatchPlan(np.ones(len(rows), dtype=np.int64), BatchSize(4, "texts"), seed=0, name="few")
    stream = SelectedTexts("few", texts, network, rows, plan, 4)
    batches = [stream.batch(step) for step in range(2 * plan.batches_per_epoch)]
    assert all(batch.texts == len(stream.positions(step)) for step, batch in enumerate(batches))
    assert sum(batch.real_tokens for batch in batches) == 2 * lengths[rows].sum()
    assert (len({batch.input_ids.shape for batch in batches}) == 1) == fixed
