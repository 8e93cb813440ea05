"""The values of a trial, and its share of the budget."""

from __future__ import annotations

import sys
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from endtask.config import Budget
from endtask.errors import InputError
from endtask.experiments.search_result import SearchTrial
from endtask.experiments.search_space import Choice, GridSearch, OptunaSearch, Range, budget_per_trial

SPACE = {
    "rate": Range(1e-4, 1e-2, is_integer=False, log=True),
    "share": Range(0.1, 0.9, is_integer=False, log=False),
    "size": Range(1, 2000, is_integer=True, log=True),
    "seeds": Choice(([0], [1, 2], None)),
}


def sampled(plan: OptunaSearch, count: int) -> list[SearchTrial]:
    """Trials whose score is their `share`."""
    trials: list[SearchTrial] = []
    for number in range(count):
        values = plan.values(number, trials)
        trials.append(SearchTrial(number, values, dev=(values["share"],)))
    return trials


def test_a_grid_is_the_product_of_its_lists() -> None:
    plan = GridSearch({"a": (1, 2, 3), "b": ("x",), "c": (None, [0])})
    found = [tuple(plan.values(number, []).values()) for number in range(plan.trials)]
    assert found == list(product((1, 2, 3), ("x",), (None, [0])))
    assert plan.to_dict() == {"strategy": "grid", "space": {"a": [1, 2, 3], "b": ["x"], "c": [None, [0]]}}


@given(seed=some.integers(0, 2**40))
@settings(max_examples=10, deadline=None)
def test_samples_lie_in_the_space(seed: int) -> None:
    pytest.importorskip("optuna")
    for trial in sampled(OptunaSearch(SPACE, 6, seed), 6):
        values = trial.values
        assert list(values) == list(SPACE)
        assert 1e-4 <= values["rate"] <= 1e-2
        assert 0.1 <= values["share"] <= 0.9
        assert isinstance(values["size"], int)
        assert 1 <= values["size"] <= 2000
        assert values["seeds"] in ([0], [1, 2], None)


def test_a_sample_depends_on_the_trials_before_and_on_nothing_else() -> None:
    pytest.importorskip("optuna")
    plan = OptunaSearch(SPACE, 9, 0)
    trials = sampled(plan, 9)
    assert OptunaSearch(SPACE, 9, 0).values(8, trials[:8]) == trials[8].values  # asked out of turn, by another object
    others = [SearchTrial(trial.number, trial.values, dev=(1 - trial.mean,)) for trial in trials[:8]]
    assert plan.values(8, others) != trials[8].values
    assert OptunaSearch(SPACE, 9, 1).values(0, []) != trials[0].values


def test_the_sampler_learns() -> None:
    """Where the score is one of the values, later trials do better than those drawn at random."""
    pytest.importorskip("optuna")
    trials = [trial for seed in range(5) for trial in sampled(OptunaSearch(SPACE, 15, seed), 15)]
    early = [trial.mean for trial in trials if trial.number < 5]
    late = [trial.mean for trial in trials if trial.number >= 10]
    assert sum(late) / len(late) > sum(early) / len(early) + 0.1


def test_a_failed_trial_counts_as_the_worst() -> None:
    pytest.importorskip("optuna")
    failed = [SearchTrial(n, OptunaSearch(SPACE, 6, n).values(0, []), failure="broke") for n in range(4)]
    plan = OptunaSearch(SPACE, 6, 0)
    worst = [SearchTrial(trial.number, trial.values, dev=(0.0,)) for trial in failed]
    assert plan.values(4, failed) == plan.values(4, worst)


def test_optuna_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'endtask\[search\]'"):
        OptunaSearch(SPACE, 6, 0).values(0, [])


@pytest.mark.parametrize(
    ("total", "trials", "each"),
    [
        ("60min", 24, "150s"),
        ("10s", 4, "2.5s"),
        ("6Mtok", 6, "1000000tok"),
        ("1e17flops", 10, "1e+16flops"),
        ("100steps", 24, "4steps"),
        ("24steps", 24, "1steps"),
        ("30steps", 3, "10steps"),
    ],
)
def test_shares(total: str, trials: int, each: str) -> None:
    assert str(budget_per_trial(Budget.parse(total), trials)) == each


@given(steps=some.integers(1, 10**6), trials=some.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_steps_never_add_up_to_more(steps: int, trials: int) -> None:
    budget = Budget.parse(f"{steps}steps")
    if steps < trials:
        with pytest.raises(InputError, match="too few"):
            budget_per_trial(budget, trials)
    else:
        assert budget_per_trial(budget, trials).amount == steps // trials


@pytest.mark.parametrize("trials", [0, -3])
def test_a_search_without_trials(trials: int) -> None:
    with pytest.raises(InputError, match="at least one"):
        budget_per_trial(Budget.parse("10min"), trials)
