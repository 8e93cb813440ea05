"""The cheaper way is taken for each layer, and is on record."""

from __future__ import annotations

import json

import pytest
import torch

from endtask.errors import InputError
from endtask.gradients.costs import BlockCosts, Counted, Work
from endtask.gradients.options import Options, Way
from endtask.gradients.plan import make_plan
from endtask.gradients.projection import Projection
from endtask.gradients.rows import Block, Gradients, LinearRows, LookupRows

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
    ("of_candidate", "of_target", "units", "way"),
    [
        (19, 1, 4000, "pairs"),  # the last layer, a head that reads the first token
        (19, 40, 4000, "matrix"),  # the last layer, a head that reads the mean
        (128, 40, 4000, "matrix"),  # a layer below
        (128, 40, 1, "bilinear"),  # one mean over all targets
        (19, 1, 500, "pairs"),  # mini-batches of 8 targets
        (128, 40, 13, "matrix"),  # a mean for each class
    ],
)
def test_the_cheapest_way_by_rows_and_units(of_candidate: int, of_target: int, units: int, way: Way) -> None:
    plan = make_plan(sample(of_candidate), sample(of_target), Work(10**6, 4000, units), Options(memory=None))
    (block,) = plan.blocks.values()
    assert block.way == way
    assert plan.multiply_adds == min(block.multiply_adds.values())
    assert (block.rows_per_candidate, block.rows_per_target) == (of_candidate, of_target)


def test_a_target_of_the_last_layer_of_110_million_weights_takes_6_kilobytes() -> None:
    assert make_plan(sample(19), sample(1), Work(10**6, 4000, 4000)).bytes_per_target == 2 * 768 * 4
    mean_pooled = make_plan(
        sample(19), sample(40), Work(10**6, 4000, 4000), Options(way="low_rank", rank=2, dtype=torch.bfloat16)
    )
    assert mean_pooled.bytes_per_target == 2 * 2 * 768 * 2 < 8000


def test_memory_can_decide() -> None:
    work = Work(10**6, 4000, 4000)
    usual = make_plan(sample(128), sample(40), work)
    assert [one.way for one in usual.blocks.values()] == ["pairs"]
    assert usual.bytes_per_target * 4000 < 4 << 30 < usual.blocks[BASE].bytes_per_target["matrix"] * 4000
    smallest = make_plan(sample(128), sample(40), work, Options(memory=1000, rank=3, projection=Projection(5000)))
    assert [one.way for one in smallest.blocks.values()] == ["low_rank"]


def test_projections_compete_only_when_asked_for() -> None:
    work = Work(10**6, 4000, 4000)
    exact, asked = (
        make_plan(sample(128), sample(40), work, options)
        for options in (Options(memory=None), Options(memory=None, projection=Projection(2048)))
    )
    assert [one.way for one in exact.blocks.values()] == ["matrix"]
    assert "projected" not in exact.blocks[BASE].multiply_adds
    assert [one.way for one in asked.blocks.values()] == ["projected"]
    assert asked.bytes_per_target == 2048 * 4


def test_word_vectors_are_never_made_matrices_for_single_targets() -> None:
    plan = make_plan(sample(0, lookups=100), sample(0, lookups=40), Work(10**6, 4000, 4000))
    assert plan.blocks[WORDS].way == "pairs"
    one_mean = make_plan(sample(0, lookups=100), sample(0, lookups=40), Work(10**6, 4000, 1))
    assert one_mean.blocks[WORDS].way == "bilinear"


def test_costs_follow_the_formulas() -> None:
    options = Options(rank=3, projection=Projection(10))
    block = Block("W", 5, 7)
    costs = BlockCosts(block, (Counted(2, 5),), (Counted(4, 5),), Work(candidates=100, targets=20, units=10), options)
    assert {way: costs.multiply_adds(way) for way in options.ways} == pytest.approx(
        {
            "pairs": 20 * 2 * 4 * 12,
            "matrix": 2 * 35 + 10 * 35 + 0.2 * 4 * 35,
            "bilinear": 10 * 2 * 35 + 0.2 * 4 * 35,
            "low_rank": 10 * 2 * 3 * 12,
            "projected": 10 * (2 * 12 + 10 + 0.2 * 4 * 12),
        }
    )
    assert {way: costs.bytes_per_target(way, 8) for way in options.ways} == pytest.approx(
        {"pairs": 384, "matrix": 140, "bilinear": 140, "low_rank": 144, "projected": 40}
    )


def test_the_record_is_plain() -> None:
    plan = make_plan(sample(19), sample(1), Work(10, 4, 4))
    (line,) = json.loads(json.dumps(plan.record()))
    assert line["layer"] == "layers.11.attn.Wo"
    assert line["way"] == "pairs"
    assert line["bytes_per_target"] == 6144


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"way": "pair"}, "there is no way 'pair' (did you mean 'pairs'?)"),
        ({"way": "low_rank"}, "key 'rank': the way low_rank needs it"),
        ({"way": "projected"}, "key 'projection': the way projected needs it"),
        ({"rank": 0}, "key 'rank': 0 is less than 1"),
        ({"projection": Projection(0)}, "key 'projection': 0 is less than 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        Options(**options)  # type: ignore[arg-type]
    assert message in str(raised.value)
