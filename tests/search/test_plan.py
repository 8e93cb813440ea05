"""Which values a trial gets, and its share of the budget."""

from __future__ import annotations

import sys
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from endtask.config import Budget
from endtask.errors import InputError
from endtask.search.plan import Grid, Sampler, share_of
from endtask.search.record import Trial
from endtask.search.space import Choice, Range

SPACE = {
    "rate": Range(1e-4, 1e-2, whole=False, log=True),
    "share": Range(0.1, 0.9, whole=False, log=False),
    "size": Range(1, 2000, whole=True, log=True),
    "seeds": Choice(([0], [1, 2], None)),
}


def sampled(plan: Sampler, count: int) -> list[Trial]:
    """Trials whose score is their `share`."""
    trials: list[Trial] = []
    for number in range(count):
        values = plan.values(number, trials)
        trials.append(Trial(number, values, dev=(values["share"],)))
    return trials


def test_a_grid_is_the_product_of_its_lists() -> None:
    plan = Grid({"a": (1, 2, 3), "b": ("x",), "c": (None, [0])})
    found = [tuple(plan.values(number, []).values()) for number in range(plan.trials)]
    assert found == list(product((1, 2, 3), ("x",), (None, [0])))
    assert plan.describe() == {"kind": "grid", "space": {"a": [1, 2, 3], "b": ["x"], "c": [None, [0]]}}


@given(seed=some.integers(0, 2**40))
@settings(max_examples=10, deadline=None)
def test_samples_lie_in_the_space(seed: int) -> None:
    pytest.importorskip("optuna")
    for trial in sampled(Sampler(SPACE, 6, seed), 6):
        values = trial.values
        assert list(values) == list(SPACE)
        assert 1e-4 <= values["rate"] <= 1e-2
        assert 0.1 <= values["share"] <= 0.9
        assert isinstance(values["size"], int)
        assert 1 <= values["size"] <= 2000
        assert values["seeds"] in ([0], [1, 2], None)


def test_a_sample_depends_on_the_trials_before_and_on_nothing_else() -> None:
    pytest.importorskip("optuna")
    plan = Sampler(SPACE, 9, 0)
    trials = sampled(plan, 9)
    assert Sampler(SPACE, 9, 0).values(8, trials[:8]) == trials[8].values  # asked out of turn, by another object
    others = [Trial(trial.number, trial.values, dev=(1 - trial.mean,)) for trial in trials[:8]]
    assert plan.values(8, others) != trials[8].values
    assert Sampler(SPACE, 9, 1).values(0, []) != trials[0].values


def test_the_sampler_learns() -> None:
    """Where the score is one of the values, later trials do better than those drawn at random."""
    pytest.importorskip("optuna")
    trials = [trial for seed in range(5) for trial in sampled(Sampler(SPACE, 15, seed), 15)]
    early = [trial.mean for trial in trials if trial.number < 5]
    late = [trial.mean for trial in trials if trial.number >= 10]
    assert sum(late) / len(late) > sum(early) / len(early) + 0.1


def test_a_failed_trial_counts_as_the_worst() -> None:
    pytest.importorskip("optuna")
    failed = [Trial(n, Sampler(SPACE, 6, n).values(0, []), failure="broke") for n in range(4)]
    plan = Sampler(SPACE, 6, 0)
    worst = [Trial(trial.number, trial.values, dev=(0.0,)) for trial in failed]
    assert plan.values(4, failed) == plan.values(4, worst)


def test_optuna_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'endtask\[search\]'"):
        Sampler(SPACE, 6, 0).values(0, [])


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
    assert str(share_of(Budget.parse(total), trials)) == each


@given(steps=some.integers(1, 10**6), trials=some.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_steps_never_add_up_to_more(steps: int, trials: int) -> None:
    budget = Budget.parse(f"{steps}steps")
    if steps < trials:
        with pytest.raises(InputError, match="too few"):
            share_of(budget, trials)
    else:
        assert share_of(budget, trials).amount == steps // trials


@pytest.mark.parametrize("trials", [0, -3])
def test_a_search_without_trials(trials: int) -> None:
    with pytest.raises(InputError, match="at least one"):
        share_of(Budget.parse("10min"), trials)
