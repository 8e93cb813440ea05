"""The values of each trial: a pure function of its number and of the trials before it, so resuming needs no replay."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from endtask.config import Budget
from endtask.config.overrides import Values
from endtask.errors import InputError
from endtask.experiments.search_space import Axes, Choice, Dimension, Space
from endtask.experiments.search_trials import SearchTrial
from endtask.seeds import derive

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


class Strategy(Protocol):
    """How a search chooses the values of its trials."""

    @property
    def trials(self) -> int: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    def to_dict(self) -> dict[str, Any]: ...

    def values(self, number: int, before: Sequence[SearchTrial]) -> Values: ...


@dataclass(frozen=True)
class GridSearch:
    """Every combination, the last key changing fastest.

    >>> grid = GridSearch({"pretrain.weighting.rho1": (1, 19), "pretrain.objectives.task.rho2": (20.0, 100.0)})
    >>> grid.trials, grid.values(1, [])
    (4, {'pretrain.weighting.rho1': 1, 'pretrain.objectives.task.rho2': 100.0})
    """

    axes: Axes

    @property
    def trials(self) -> int:
        return math.prod(map(len, self.axes.values()))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.axes)

    def to_dict(self) -> dict[str, Any]:
        """Return what the record stores."""
        return {"strategy": "grid", "space": {key: list(values) for key, values in self.axes.items()}}

    def values(self, number: int, before: Sequence[SearchTrial]) -> Values:
        """Return the combination of this number."""
        return dict(zip(self.axes, list(product(*self.axes.values()))[number], strict=True))


@dataclass(frozen=True)
class OptunaSearch:
    """Optuna's TPE sampler: the first trials at random, the others near those that did well."""

    space: Space
    trials: int
    seed: int

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.space)

    def to_dict(self) -> dict[str, Any]:
        """Return what the record stores."""
        return {"strategy": "optuna", "space": {key: str(found) for key, found in self.space.items()}}

    def values(self, number: int, before: Sequence[SearchTrial]) -> Values:
        """Return what Optuna suggests after these trials.

        Each trial has its own study and random stream, so that a resumed search needs only the results.
        """
        optuna = import_optuna()
        distributions = {key: _distribution(found) for key, found in self.space.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `multivariate`, before 5.0
            sampler = optuna.samplers.TPESampler(
                seed=derive(self.seed, "search", number) % 2**32,
                multivariate=True,
                constant_liar=False,
                # Optuna's default of ten would make a small search random; fewer than four say too little.
                n_startup_trials=min(10, max(4, self.trials // 3)),
            )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in before:
            study.add_trial(self._as_optuna(trial, distributions))
        suggested = study.ask(fixed_distributions=distributions)
        return {key: _from_optuna(found, suggested.params[key]) for key, found in self.space.items()}

    def _as_optuna(self, trial: SearchTrial, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
        params = {key: _to_optuna(found, trial.values[key]) for key, found in self.space.items()}
        found: FrozenTrial = import_optuna().trial.create_trial(
            params=params, distributions=distributions, value=trial.mean
        )
        return found


def import_optuna() -> Any:
    """Return Optuna without its log output; raise with the install command if it is missing."""
    try:
        import optuna
    except ImportError:
        raise InputError("--trials needs Optuna", hint="pip install 'endtask[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def budget_per_trial(budget: Budget, trials: int) -> Budget:
    """Return an equal part for each trial; steps are rounded down.

    >>> str(budget_per_trial(Budget.parse("60min"), 24)), str(budget_per_trial(Budget.parse("100steps"), 24))
    ('150s', '4steps')
    """
    if trials < 1:
        raise InputError(f"{trials} trials: a search needs at least one")
    share = budget.share(1 / trials)
    if budget.unit != "steps":
        return share
    if budget.amount < trials:
        raise InputError(f"{budget} are too few for {trials} trials", key="budget", hint=f"--budget {trials}steps")
    return Budget.parse(f"{int(budget.amount / trials + 1e-9)}steps")


def _distribution(dimension: Dimension) -> BaseDistribution:
    distributions = import_optuna().distributions
    found: BaseDistribution
    if isinstance(dimension, Choice):
        # By index: Optuna's own choices may not be lists.
        found = distributions.CategoricalDistribution(range(len(dimension.values)))
    elif dimension.is_integer:
        found = distributions.IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    else:
        found = distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    return found


def _to_optuna(dimension: Dimension, value: Any) -> Any:
    if not isinstance(dimension, Choice):
        return value
    return [json.dumps(choice) for choice in dimension.values].index(json.dumps(value))


def _from_optuna(dimension: Dimension, value: Any) -> Any:
    return dimension.values[value] if isinstance(dimension, Choice) else value
