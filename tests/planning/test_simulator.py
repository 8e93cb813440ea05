"""The simulator against measurements that it made itself, and against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from endtask.planning.limits import CHANGES, advice, slowest
from endtask.planning.measured import (
    MeasuredRetrieval,
    Rates,
    Retrieval,
    entered,
    fit_rates,
    retrieved_passages,
)
from endtask.planning.simulator import Machines, driver_bytes, rounds_of, simulate, total_seconds

RATES = Rates((0.5, 6e-8), (3e-9, 1e-7), (4e-8, 2e-8), (2e-7, 5e-8), 0.25, 0.7)
SMALL = Retrieval(1e9, 8e5, 1000, 1000, 4e8)
TWO_CORES = Machines(cores=2)


def measured(size: Retrieval, rates: Rates = RATES) -> MeasuredRetrieval:
    """What a machine of two cores with these rates would show."""
    seconds = {cost.name: cost.seconds for cost in simulate(size, rates, TWO_CORES)}
    seconds["driver"] = seconds.pop("join") + seconds.pop("writing")
    found = retrieved_passages(size, rates.overlap)
    return MeasuredRetrieval(size, 2, seconds, found, rates.scratch_share * size.text_bytes)


def test_rates_are_found_again() -> None:
    fitted = fit_rates([measured(SMALL), measured(SMALL.scaled(2e9))])
    for name, value in vars(RATES).items():
        assert getattr(fitted, name) == pytest.approx(value, rel=1e-6), name


def test_a_larger_corpus_is_predicted_from_two_small_ones() -> None:
    fitted = fit_rates([measured(SMALL), measured(SMALL.scaled(2e9))])
    large = SMALL.scaled(8e9)
    assert total_seconds(simulate(large, fitted, TWO_CORES)) == pytest.approx(measured(large).total, rel=1e-6)


def test_no_rate_is_below_zero() -> None:
    first, second = measured(SMALL), measured(SMALL.scaled(2e9))
    faster = replace(second, seconds={name: value / 4 for name, value in first.seconds.items()})
    fitted = fit_rates([first, faster])
    assert min(*fitted.statistics, *fitted.ranking, *fitted.fetching, *fitted.driver) >= 0


def test_how_many_passages_enter_a_best_k() -> None:
    """Against a count over random orders."""
    generator, passages, best = np.random.default_rng(0), 400, 10
    counts = []
    for _ in range(200):
        scores, entries, top = generator.random(passages), 0, np.full(best, -1.0)
        for score in scores:
            if score > top.min():
                top[top.argmin()] = score
                entries += 1
        counts.append(entries)
    expected = entered(Retrieval(1.0, passages, 1, best, 1.0))
    assert expected == pytest.approx(np.mean(counts), rel=0.05)


def test_retrieved_passages_are_those_of_random_draws() -> None:
    generator = np.random.default_rng(0)
    drawn = np.mean([len(np.unique(generator.integers(0, 500, 300))) for _ in range(200)])
    assert retrieved_passages(Retrieval(1.0, 500, 30, 10, 1.0), 1.0) == pytest.approx(drawn, rel=0.02)


def test_machines_divide_what_is_not_the_drivers() -> None:
    one, eight = (simulate(SMALL.scaled(1e12), RATES, Machines(count, 16)) for count in (1, 8))
    seconds = [{cost.name: cost.seconds for cost in costs} for costs in (one, eight)]
    assert seconds[1]["fetching"] == pytest.approx(seconds[0]["fetching"] / 8)
    assert seconds[1]["join"] == seconds[0]["join"]
    assert "merging" in seconds[1]
    assert "merging" not in seconds[0]


def test_slow_storage_is_the_limit() -> None:
    costs = simulate(SMALL, RATES, Machines(4, 16, bytes_per_second=1e4))
    assert {cost.limit for cost in costs if cost.machines > 1} == {"storage"}
    assert slowest(costs).limit == "storage"


@pytest.mark.parametrize("queries", [1, 1000, 100_000, 1_000_000])
def test_memory_of_blocks_and_rounds(queries: int) -> None:
    """As many rounds as the real pass makes."""
    from endtask.retrieval.bm25.score import block_size

    size, cores = replace(SMALL, queries=queries), 16
    firsts = range(0, queries, block_size(queries, size.top_k, cores))
    assert rounds_of(size, Machines(cores=cores)) == math.ceil(len(firsts) / cores)


def test_the_drivers_memory_grows_with_the_passages() -> None:
    sizes = [driver_bytes(SMALL.scaled(text)) for text in (1e9, 16e9, 160e9, 1e12)]
    assert all(one < other for one, other in pairwise(sizes))
    assert sizes[-1] > 10 * 8e8  # two tables of 8 bytes for each passage and more


def test_advice_names_the_longest_stage_and_missing_memory() -> None:
    size, machines = SMALL.scaled(1e12, queries=1e5), Machines(4, 16)
    costs = simulate(size, RATES, machines)
    lines = list(advice(size, costs, machines, 1e9))
    assert lines[0].startswith(f"longest: {slowest(costs).name}")
    assert any("times" in line for line in lines)
    assert any(line.startswith("warning: join needs") for line in lines)


def test_every_stage_has_a_remedy() -> None:
    for rate in (1e3, math.inf):
        for cost in simulate(SMALL, RATES, Machines(2, 2, bytes_per_second=rate)):
            assert (cost.name, cost.limit) in CHANGES
