"""Targets in every form: equal scores for all strategies, orders and units."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from endtask.gradients.engine import GradientEngine, masked_lm_losses, task_losses
from endtask.gradients.rows import Gradients, Units, average
from endtask.gradients.targets import STRATEGIES, Measure, Options, Strategy, Targets, Workload, make_plan, products
from tests.gradients.batches import labelled_batch, make_network, masked_batch
from tests.gradients.oracle import flat_gradients, relative_error
from tests.gradients.random_rows import as_flat, random_gradients

LAYERS = ("last", "embedding")


def kept_targets(targets: Gradients, candidates: Gradients, units: Units, options: Options | None = None) -> Targets:
    work = Workload(100, max(1, targets.count), max(1, units.count))
    return Targets(make_plan(candidates, targets, work, options), units)


def unit_means(flat: Tensor, units: Units) -> Tensor:
    """The plain way to means by unit."""
    lines = [flat[torch.from_numpy(units.numbers == number)].mean(0) for number in range(units.count)]
    return torch.stack(lines)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    size=st.integers(1, 4),
    strategy=st.sampled_from(STRATEGIES),
    measure=st.sampled_from(["dot", "cosine"]),
    most_rows=st.integers(0, 5),
)
def test_every_strategy_equals_whole_matrices(
    seed: int, sizes: tuple[int, int], size: int, strategy: Strategy, measure: str, most_rows: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    candidates, targets = (random_gradients(count, random, most_rows=most_rows) for count in sizes)
    units = Units.consecutive(sizes[1], size)
    kept = kept_targets(targets, candidates, units, Options(strategy=strategy))
    kept.add(targets)
    scores = kept.scores(candidates, measure)  # type: ignore[arg-type]
    one, other = as_flat(candidates), unit_means(as_flat(targets), units)
    expected = one @ other.T
    if measure == "cosine":
        lengths = one.norm(dim=1)[:, None] * other.norm(dim=1)
        expected = torch.where(lengths > 0, expected / lengths, 0)
    assert scores.shape == expected.shape
    assert torch.allclose(scores, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_mini_batches_on_both_sides_equal_gradients_of_mean_losses(strategy: Strategy) -> None:
    network = make_network("bert")
    engine = GradientEngine(network, LAYERS)
    masked, labelled = masked_batch(network, [6, 9, 3, 7, 5]), labelled_batch(network, [4, 8, 3, 5], seed=1)
    of_candidates, of_targets = Units.consecutive(5, 2), Units.consecutive(4, 3)
    candidates, _ = of_candidates.merge(engine.gradients(masked, masked_lm_losses))
    targets = engine.gradients(labelled, task_losses)
    kept = kept_targets(targets, candidates, of_targets, Options(strategy=strategy))
    kept.add(targets)
    one = unit_means(flat_gradients(network, masked, masked_lm_losses, LAYERS), of_candidates)
    other = unit_means(flat_gradients(network, labelled, task_losses, LAYERS), of_targets)
    assert relative_error(kept.scores(candidates), one, other) < 1e-8
    cosines = (one @ other.T) / (one.norm(dim=1)[:, None] * other.norm(dim=1))
    assert torch.allclose(kept.scores(candidates, "cosine"), cosines, atol=1e-8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_targets_may_come_in_any_order_and_grouping(strategy: Strategy) -> None:
    random = torch.Generator().manual_seed(0)
    candidates, targets = random_gradients(4, random), random_gradients(6, random)
    units = Units(np.array([2, 0, 2, 1, 0, 2]), 3)
    together, apart = (kept_targets(targets, candidates, units, Options(strategy=strategy)) for _ in range(2))
    together.add(targets)
    for text in (5, 0, 3, 1, 4, 2):
        here = torch.zeros(6, dtype=torch.int64)
        share = (torch.arange(6) == text).double()
        apart.add(targets.merged(here, share, 1), np.array([text]))
    for measure in ("dot", "cosine"):
        assert torch.allclose(together.scores(candidates, measure), apart.scores(candidates, measure))


def test_several_masks_are_averaged() -> None:
    network = make_network()
    engine = GradientEngine(network, LAYERS)
    readings = [masked_batch(network, [6, 9, 3]), masked_batch(network, [6, 9, 3], probability=0.6)]
    assert torch.equal(readings[0].offsets, readings[1].offsets)
    mean = average([engine.gradients(batch, masked_lm_losses) for batch in readings])
    flat = sum(flat_gradients(network, batch, masked_lm_losses, LAYERS) for batch in readings) / 2
    assert isinstance(flat, Tensor)
    assert relative_error(products(mean, mean), flat, flat) < 1e-8
    labelled = labelled_batch(network, [5, 4])
    targets = engine.gradients(labelled, task_losses)
    other = flat_gradients(network, labelled, task_losses, LAYERS)
    assert relative_error(products(mean, targets), flat, other) < 1e-8


def test_only_like_gradients_are_averaged() -> None:
    random = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match="same texts"):
        average([random_gradients(2, random), random_gradients(3, random)])


def test_a_target_of_the_last_layer_takes_one_row() -> None:
    network = make_network("bert", dtype=torch.float32)
    engine = GradientEngine(network)
    targets = engine.gradients(labelled_batch(network, [6, 9, 3, 5]), task_losses)
    candidates = engine.gradients(masked_batch(network, [6, 9, 3]), masked_lm_losses)
    kept = kept_targets(targets, candidates, Units.single(4))
    kept.add(targets)
    assert {plan.strategy for plan in kept.plan.blocks.values()} == {"pairs"}
    assert kept.plan.bytes_per_target == 2 * 8 * 4
    assert kept.bytes_per_target == 2 * 8 * 4 + 8  # and the number of its unit


def test_scores_need_targets_and_a_known_measure() -> None:
    random = torch.Generator().manual_seed(0)
    candidates, targets = random_gradients(2, random), random_gradients(2, random)
    kept = kept_targets(targets, candidates, Units.single(2))
    with pytest.raises(ValueError, match="2 of 2 targets were not added, such as 0"):
        kept.scores(candidates)


def test_every_target_is_added_once() -> None:
    random = torch.Generator().manual_seed(0)
    candidates, batch = random_gradients(2, random), random_gradients(2, random)
    kept = kept_targets(batch, candidates, Units.single(4))
    kept.add(batch)
    with pytest.raises(ValueError, match="target 0 was added before"):
        kept.add(batch)
    with pytest.raises(ValueError, match="2 of 4 targets were not added, such as 2"):
        kept.scores(candidates)
    with pytest.raises(ValueError, match="named twice"):
        kept.add(batch, np.array([3, 3]))
    for places in ([2, 4], [-1, 2]):
        with pytest.raises(ValueError, match="but there are 4 targets"):
            kept.add(batch, np.array(places))
    kept.add(batch, np.array([2, 3]))
    scores = kept.scores(candidates)
    assert torch.equal(scores[:, :2], scores[:, 2:])


@pytest.mark.parametrize("measure", ["dot", "cosine"])
@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0)])
def test_without_texts_the_table_is_empty(sizes: tuple[int, int], measure: Measure) -> None:
    random = torch.Generator().manual_seed(0)
    candidates, targets = (random_gradients(count, random) for count in sizes)
    for strategy in STRATEGIES:
        assert products(candidates, targets, measure, Options(strategy=strategy)).shape == sizes
