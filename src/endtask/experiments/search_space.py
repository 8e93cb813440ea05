"""The values that a search tries: lists for a grid, ranges and choices for Optuna, and the values of each trial."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from endtask.config import Budget, Settings
from endtask.config.overrides import Values, read_list, split_entry, with_values
from endtask.errors import InputError, did_you_mean
from endtask.experiments.flags import read_grid
from endtask.experiments.search_result import SearchTrial
from endtask.experiments.variants import checked_values
from endtask.seeds import derive

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

VALUES, SPACE = "--values", "--space"
_SPACE_EXAMPLE = "pretrain.learning_rate=log:1e-4:3e-3 or pretrain.weighting.rho1=choice:1,19,99"

# TLM's grid (Yao et al. 2022, appendix B).
PAPER_RHO1 = (1, 3, 7, 19, 99, 499, 999, 1999)
PAPER_RHO2 = (20.0, 100.0, 1000.0)
_RATE_FACTOR = 5.0

# Trials that differ in these keys have other dev rows, another metric, another budget, or only another seed.
_NOT_SEARCHED = ("output_dir", "budget", "seed", "pretrain.seed", "task", "evaluate")
_MOST_COMBINATIONS = 4096

_RANGES = {"float": (False, False), "log": (False, True), "int": (True, False), "logint": (True, True)}


@dataclass(frozen=True)
class Choice:
    """A choice among values without an order."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return "choice:" + ",".join(json.dumps(value, ensure_ascii=False) for value in self.values)


@dataclass(frozen=True)
class Range:
    """An integer or float between two ends, uniform on a linear or logarithmic scale.

    >>> str(Range(1e-4, 3e-3, is_integer=False, log=True))
    'log:0.0001:0.003'
    """

    low: float
    high: float
    is_integer: bool
    log: bool

    def __str__(self) -> str:
        kind = next(name for name, traits in _RANGES.items() if traits == (self.is_integer, self.log))
        return f"{kind}:{self.low!r}:{self.high!r}"

    @property
    def values(self) -> tuple[float, ...]:
        """The two ends."""
        return (self.low, self.high)


Dimension = Choice | Range
Axes = dict[str, tuple[Any, ...]]
Space = dict[str, Dimension]


def grid_axes(entries: Sequence[str], settings: Settings) -> Axes:
    """Return the lists of `--values`, or TLM's grid without such flags."""
    grid = read_grid(entries)
    axes = {key: checked(settings, key, values, VALUES) for key, values in grid.items()} or _paper_grid(settings)
    check_together(settings, axes, VALUES if entries else "--grid")
    return axes


def search_space(entries: Sequence[str], settings: Settings) -> Space:
    """Return the ranges and choices of `--space`, or the default space without such flags."""
    space: Space = {}
    for entry in entries:
        key, text = split_entry(entry, SPACE, _SPACE_EXAMPLE)
        if key in space:
            raise InputError("the key is given twice", path=SPACE, key=key)
        space[key] = _dimension(settings, key, text)
    space = space or default_space(settings)
    ends = {key: dimension.values for key, dimension in space.items()}
    check_together(settings, ends, SPACE if entries else "--trials")
    return space


def default_space(settings: Settings) -> Space:
    """Return both learning rates from a fifth to five times their values, TLM's grid, and the masked share.

    Settings without effect are left out.
    """
    space: Space = {"pretrain.learning_rate": _around(settings.pretrain.learning_rate)}
    if not settings.skip_finetuning:
        space["finetune.learning_rate"] = _around(*settings.finetune.learning_rates)
    space |= {key: Choice(values) for key, values in _paper_grid(settings).items()}
    return {**space, "pretrain.mask_probability": Range(0.15, 0.4, is_integer=False, log=False)}


def _paper_grid(settings: Settings) -> Axes:
    """Return TLM's grid, without rho1 or rho2 if it has no effect: they need a corpus and masked task texts."""
    train = settings.pretrain
    interleaves = settings.has_selection and "rho1" in type(train.weighting).model_fields
    axes: Axes = {"pretrain.weighting.rho1": PAPER_RHO1} if interleaves else {}
    joint = [name for name, section in settings.used_objectives.items() if "rho2" in type(section).model_fields]
    return {**axes, **{f"pretrain.objectives.{name}.rho2": PAPER_RHO2 for name in joint}}


def _around(*rates: float) -> Range:
    """Return a range around learning rates, rounded to six digits so that 1e-3 / 5 is 0.0002."""
    low, high = min(rates) / _RATE_FACTOR, max(rates) * _RATE_FACTOR
    return Range(float(f"{low:.6g}"), float(f"{high:.6g}"), is_integer=False, log=True)


def _dimension(settings: Settings, key: str, text: str) -> Dimension:
    kind, _, values = text.partition(":")
    if kind == "choice":
        return Choice(checked(settings, key, read_list(values, SPACE, key), SPACE))
    if kind not in _RANGES:
        hint = did_you_mean(kind, [*_RANGES, "choice"])
        raise InputError(f"unknown kind {kind!r}", path=SPACE, key=key, hint=hint)
    dimension = _read_range(kind, values, key)
    # An integer setting would accept both ends of float:1:5 and reject nearly all values between them.
    inner = () if dimension.is_integer else (dimension.low + 0.382 * (dimension.high - dimension.low),)
    # Neighbouring floats have no value between them: the inner value is then one of the ends.
    checked(settings, key, tuple(dict.fromkeys((*dimension.values, *inner))), SPACE)
    return dimension


def _read_range(kind: str, text: str, key: str) -> Range:
    is_integer, log = _RANGES[kind]
    try:
        low, high = (int(end) if is_integer else float(end) for end in text.split(":"))
    except ValueError:
        example = "int:1:10" if is_integer else f"{kind}:0.1:0.5"
        raise InputError(f"{text!r} is not two numbers", path=SPACE, key=key, hint=f"for example {example}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"{text!r}: the first number must be the smaller one", path=SPACE, key=key)
    if log and low <= 0:
        raise InputError("a logarithmic range must begin above 0", path=SPACE, key=key)
    return Range(low, high, is_integer, log)


def checked(settings: Settings, key: str, values: Sequence[Any], where: str) -> tuple[Any, ...]:
    """Return the values of a key as settings parse them. Raise `InputError` for a wrong key or value."""
    if key in _NOT_SEARCHED or key.partition(".")[0] in _NOT_SEARCHED:
        raise InputError("trials that differ in this cannot be compared on dev", path=where, key=key)
    return checked_values(settings, key, values, where)


def check_together(settings: Settings, axes: Mapping[str, Sequence[Any]], where: str) -> None:
    """Raise `InputError` for values that are valid alone and invalid together, before they stop a search."""
    if math.prod(map(len, axes.values())) <= _MOST_COMBINATIONS:
        for values in product(*axes.values()):
            with_values(settings, dict(zip(axes, values, strict=True)), where)


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
    """Every combination, with the last key changing fastest.

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
        """Return plain values for the record."""
        return {"strategy": "grid", "space": {key: list(values) for key, values in self.axes.items()}}

    def values(self, number: int, before: Sequence[SearchTrial]) -> Values:
        """Return the combination of this number."""
        return dict(zip(self.axes, list(product(*self.axes.values()))[number], strict=True))


@dataclass(frozen=True)
class OptunaSearch:
    """Optuna's TPE sampler: the first trials are random, the others near good trials."""

    space: Space
    trials: int
    seed: int

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.space)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the record."""
        return {"strategy": "optuna", "space": {key: str(dimension) for key, dimension in self.space.items()}}

    def values(self, number: int, before: Sequence[SearchTrial]) -> Values:
        """Return the values that Optuna suggests after these trials.

        Each trial has its own study and random stream, so that a resumed search needs only the results.
        """
        optuna = import_optuna()
        distributions = {key: _distribution(dimension) for key, dimension in self.space.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `multivariate`, before 5.0
            sampler = optuna.samplers.TPESampler(
                seed=derive(self.seed, "search", number) % 2**32,
                multivariate=True,
                constant_liar=False,
                # Optuna's default of ten would make a small search random; fewer than four are too few to learn from.
                n_startup_trials=min(10, max(4, self.trials // 3)),
            )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in before:
            study.add_trial(self._as_optuna(trial, distributions))
        suggested = study.ask(fixed_distributions=distributions)
        return {key: _from_optuna(dimension, suggested.params[key]) for key, dimension in self.space.items()}

    def _as_optuna(self, trial: SearchTrial, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
        params = {key: _to_optuna(dimension, trial.values[key]) for key, dimension in self.space.items()}
        frozen: FrozenTrial = import_optuna().trial.create_trial(
            params=params, distributions=distributions, value=trial.mean
        )
        return frozen


def import_optuna() -> Any:
    """Return Optuna without its log output. Raise `InputError` with the install command if it is missing."""
    try:
        import optuna
    except ImportError:
        raise InputError("--trials needs Optuna", hint="pip install 'endtask[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def budget_per_trial(budget: Budget, trials: int) -> Budget:
    """Return an equal share of the budget for each trial; steps are rounded down.

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
    distribution: BaseDistribution
    if isinstance(dimension, Choice):
        # By index, because Optuna's choices may not be lists.
        distribution = distributions.CategoricalDistribution(range(len(dimension.values)))
    elif dimension.is_integer:
        distribution = distributions.IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    else:
        distribution = distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    return distribution


def _to_optuna(dimension: Dimension, value: Any) -> Any:
    if not isinstance(dimension, Choice):
        return value
    return [json.dumps(choice) for choice in dimension.values].index(json.dumps(value))


def _from_optuna(dimension: Dimension, value: Any) -> Any:
    return dimension.values[value] if isinstance(dimension, Choice) else value
