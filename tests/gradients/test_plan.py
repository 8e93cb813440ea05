"""The plan chooses the cheaper strategy for each layer, and records it."""

from __future__ import annotations

import json

import pytest
import torch

from endtask.gradients.rows import Block, Gradients, LinearRows, LookupRows
from endtask.gradients.targets import STRATEGIES, BlockCosts, Options, RowCounts, Strategy, Workload, make_plan

BASE = Block("layers.11.attn.Wo", 768, 768)
WORDS = Block("embeddings", 30000, 768)


def sample(rows: int, *, texts: int = 2, lookups: int = 0) -> Gradients:
    """So many rows for every text."""
    owners = torch.arange(texts).repeat_interleave(rows)
    linear = LinearRows(left=torch.zeros(rows * texts, 768), right=torch.zeros(rows * texts, 768), owners=owners)
    if not lookups:
        return Gradients(texts, {BASE: (linear,)})
    places = torch.arange(texts).repeat_interleave(lookups)
    words = LookupRows(tokens=places, right=torch.zeros(len(places), 768), owners=places)
    return Gradients(texts, {WORDS: (words,)})


@pytest.mark.parametrize(
    ("of_candidate", "of_target", "units", "strategy"),
    [
        (19, 1, 4000, "pairs"),  # the last layer, a head that reads the first token
        (19, 40, 4000, "matrix"),  # the last layer, a head that reads the mean
        (128, 40, 4000, "matrix"),  # a layer below
        (128, 40, 1, "matrix"),  # one mean over all targets
        (19, 1, 500, "pairs"),  # mini-batches of 8 targets
        (128, 40, 13, "matrix"),  # a mean for each class
    ],
)
def test_the_cheaper_strategy_by_rows_and_units(
    of_candidate: int, of_target: int, units: int, strategy: Strategy
) -> None:
    plan = make_plan(sample(of_candidate), sample(of_target), Workload(10**6, 4000, units), Options(memory=None))
    (block,) = plan.blocks.values()
    assert block.strategy == strategy
    assert plan.multiply_adds == min(block.multiply_adds.values())
    assert (block.rows_per_candidate, block.rows_per_target) == (of_candidate, of_target)


def test_a_target_of_the_last_layer_of_110_million_weights_takes_6_kilobytes() -> None:
    assert make_plan(sample(19), sample(1), Workload(10**6, 4000, 4000)).bytes_per_target == 2 * 768 * 4


def test_memory_can_decide() -> None:
    work = Workload(10**6, 4000, 4000)
    usual = make_plan(sample(128), sample(40), work)
    assert [one.strategy for one in usual.blocks.values()] == ["pairs"]
    assert usual.bytes_per_target * 4000 < 4 << 30 < usual.blocks[BASE].bytes_per_target["matrix"] * 4000
    smallest = make_plan(sample(128), sample(40), work, Options(memory=1000))
    assert [one.strategy for one in smallest.blocks.values()] == ["pairs"]
    assert make_plan(sample(128), sample(40), work, Options(memory=None)).blocks[BASE].strategy == "matrix"


def test_word_vectors_are_never_made_matrices_for_single_targets() -> None:
    plan = make_plan(sample(0, lookups=100), sample(0, lookups=40), Workload(10**6, 4000, 4000))
    assert plan.blocks[WORDS].strategy == "pairs"
    one_mean = make_plan(sample(0, lookups=100), sample(0, lookups=40), Workload(10**6, 4000, 1))
    assert one_mean.blocks[WORDS].strategy == "matrix"


def test_costs_follow_the_formulas() -> None:
    work = Workload(candidates=100, targets=20, units=10)
    costs = BlockCosts(Block("W", 5, 7), (RowCounts(2, 5),), (RowCounts(4, 5),), work)
    assert {strategy: costs.multiply_adds(strategy) for strategy in STRATEGIES} == pytest.approx(
        {"pairs": 20 * 2 * 4 * 12, "matrix": 2 * 35 + 10 * 35 + 0.2 * 4 * 35}
    )
    assert {strategy: costs.bytes_per_target(strategy, 8) for strategy in STRATEGIES} == pytest.approx(
        {"pairs": 384, "matrix": 140}
    )


def test_the_record_is_plain() -> None:
    plan = make_plan(sample(19), sample(1), Workload(10, 4, 4))
    (line,) = json.loads(json.dumps(plan.record()))
    assert line["layer"] == "layers.11.attn.Wo"
    assert line["strategy"] == "pairs"
    assert line["bytes_per_target"] == 6144
