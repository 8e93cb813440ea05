"""The table: mean and spread of every score by arm and number of labels, and tests against the first arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.evaluate import mean_and_spread
from endtask.evaluation.significance import holm, metric_permutation
from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.few_examples.draws import Draw
from endtask.few_examples.paired import surprise_permutation
from endtask.few_examples.plan import Plan
from endtask.few_examples.result import Result
from endtask.few_examples.units import Units
from endtask.task.targets import Answers

PERPLEXITY = "perplexity"
CLEAR = 0.05


@dataclass(frozen=True)
class Test:
    """The lead over the first arm, how probable so large a one is by chance, and that for all tests together.

    The lead is the difference that was tested, which that of the means in `Cell.scores` need not be: of folds all rows
    are scored together, and perplexities are averaged as their logarithms.
    """

    lead: float
    p_value: float
    p_holm: float = 1.0

    @property
    def is_clear(self) -> bool:
        """Whether it is more than chance."""
        return self.p_holm < CLEAR


@dataclass(frozen=True)
class Cell:
    """An arm with a number of labels: means and standard deviations over draws and seeds at the best rate."""

    labels: int
    learning_rate: float
    runs: int
    epoch: float
    scores: dict[str, dict[str, float]]
    rates: list[dict[str, float]]
    tests: dict[str, Test] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """An arm of the table."""

    name: str
    run: str
    train: str
    head: str
    tasks: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Outcome:
    """All that was found; `metric` is what the task is judged by."""

    folder: Path
    task: str
    metric: str
    labels: tuple[int, ...]
    scored: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    plan: Plan

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is shown and tested: the task's metric, accuracy and perplexity."""
        return tuple(dict.fromkeys((self.metric, "accuracy", PERPLEXITY)))

    def statistics(self) -> dict[str, Any]:
        """Plain values for JSON."""
        tree = asdict(self)
        return {**tree, "folder": str(self.folder), "plan": self.plan.model_dump(mode="json")}


@dataclass(frozen=True)
class Judge:
    """How the runs of an arm are put together and scored."""

    plan: Plan
    draws: Sequence[Draw]
    units: Units
    measure: Measure
    groups: NDArray[np.int64]
    """Of each row of the task; rows of one group are swapped together."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that are tested, perplexity apart."""
        return tuple(dict.fromkeys((self.measure.name, "accuracy")))

    def cell(self, labels: int, results: Sequence[Result]) -> tuple[Cell, list[Result]]:
        """The cell of a number of labels, and the results at its best rate, by perplexity on held-out rows."""
        by_rate: dict[float, list[Result]] = {}
        for result in results:
            by_rate.setdefault(result.key.rate, []).append(result)
        scores = {rate: self._scores(found) for rate, found in by_rate.items()}
        rates = [{"learning_rate": rate, **self._of_rate(found, scores[rate])} for rate, found in by_rate.items()]
        best = min(rates, key=lambda row: row["held_out_perplexity"])["learning_rate"]
        kept = by_rate[best]
        return Cell(labels, best, len(kept), fmean(one.epoch for one in kept), scores[best], rates), kept

    def _of_rate(self, results: Sequence[Result], scores: dict[str, dict[str, float]]) -> dict[str, float]:
        """Perplexities are averaged as their logarithms are: one run gone wrong must not decide alone."""
        held_out = float(np.exp(fmean(np.log(one.held_out_perplexity) for one in results)))
        return {
            "held_out_perplexity": held_out,
            **{name: scores[name]["mean"] for name in (*self.metrics, PERPLEXITY)},
        }

    def _scores(self, results: Sequence[Result]) -> dict[str, dict[str, float]]:
        each = [
            {
                **self.measure.all_scores(self.units.truth[self.draws[one.key.draw].test], one.as_array(self.units)),
                PERPLEXITY: one.perplexity,
            }
            for one in results
        ]
        return {name: mean_and_spread("", [scores[name] for scores in each]) for name in each[0]}

    def answers(self, results: Sequence[Result]) -> Answers:
        """What an arm's runs said about the scored rows: (runs, rows, ...); of folds each seed is one run."""
        if self.plan.folds is None:
            return np.stack([one.as_array(self.units) for one in results])
        whole = {one.key.seed: np.empty_like(self.units.truth) for one in results}
        for one in results:
            whole[one.key.seed][self.draws[one.key.draw].test] = one.as_array(self.units)
        return np.stack(list(whole.values()))

    @property
    def truth(self) -> Answers:
        """The right answers to the scored rows."""
        return self.units.truth[self._scored]

    @property
    def _scored(self) -> NDArray[np.int64]:
        return np.arange(len(self.units.truth)) if self.plan.folds is not None else self.draws[0].test

    def surprise(self, results: Sequence[Result]) -> NDArray[np.float64]:
        """The cross-entropy of each scored row, the mean over runs."""
        if self.plan.folds is None:
            means: NDArray[np.float64] = np.asarray([one.surprise for one in results]).mean(axis=0)
            return means
        sums = np.zeros(len(self.units.truth))
        for one in results:
            sums[self.draws[one.key.draw].test] += one.surprise
        return sums / len({one.key.seed for one in results})

    def tests(self, kept: Sequence[Result], first: Sequence[Result]) -> dict[str, Test]:
        """Tests of an arm's results against those of the first arm."""
        found, groups, truth = {}, self.groups[self._scored], self.truth
        answers = self.answers(kept), self.answers(first)
        for name in self.metrics:
            measure = replace(self.measure, name=name)
            score, first_score = (float(score_runs(each, truth, measure).mean()) for each in answers)
            found[name] = Test(score - first_score, metric_permutation(*answers, truth, measure, groups=groups))
        lead = _common_perplexity(kept) - _common_perplexity(first)
        found[PERPLEXITY] = Test(lead, surprise_permutation(self.surprise(kept), self.surprise(first), groups))
        return found


def _common_perplexity(results: Sequence[Result]) -> float:
    """exp of the mean cross-entropy over all that is asked of all runs."""
    surprise = sum(sum(one.surprise) for one in results)
    return float(np.exp(surprise / max(1, sum(sum(one.asked) for one in results))))


def judged(judge: Judge, results: Mapping[str, Sequence[Result]], labels: Sequence[int]) -> dict[str, tuple[Cell, ...]]:
    """The cells of every arm, by its name; all but the first arm are tested against it."""
    made = {
        arm: [judge.cell(number, [one for one in found if one.key.labels == number]) for number in labels]
        for arm, found in results.items()
    }
    first, *others = made
    cells = {arm: [cell for cell, _ in pairs] for arm, pairs in made.items()}
    for arm in others:
        for place, ((cell, kept), (_, first_kept)) in enumerate(zip(made[arm], made[first], strict=True)):
            cells[arm][place] = replace(cell, tests=judge.tests(kept, first_kept))
    return {arm: tuple(found) for arm, found in _corrected(cells).items()}


def _corrected(cells: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    """Holm's correction over all tests of the table on one metric."""
    places = [(arm, place) for arm, found in cells.items() for place, cell in enumerate(found) if cell.tests]
    names = list(cells[places[0][0]][places[0][1]].tests) if places else []
    for name in names:
        values = holm([cells[arm][place].tests[name].p_value for arm, place in places])
        for (arm, place), value in zip(places, values, strict=True):
            cell = cells[arm][place]
            cells[arm][place] = replace(cell, tests={**cell.tests, name: replace(cell.tests[name], p_holm=value)})
    return cells
