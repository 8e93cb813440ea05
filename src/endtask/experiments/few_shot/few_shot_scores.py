"""The results of few-shot trials, and tables of them: scores by variant and number of labels, with tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.evaluation.significance import metric_permutation
from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.label_draws import Draw, Indices
from endtask.experiments.few_shot.trial_rows import PredictionUnits
from endtask.experiments.statistics import Difference, Score, holm_corrected, loss_permutation
from endtask.io.atomic import write_text
from endtask.task.targets import Answers, as_lists, from_lists

_DECIMALS = 6


@dataclass(frozen=True)
class FewShotResult:
    """The epoch that was best on held-out rows, its perplexity there, and the predictions of the scored rows.

    `losses` has the cross-entropy of each scored row, summed over its units, and `counts` their number.
    """

    trial: FewShotTrial
    epoch: int
    held_out_perplexity: float
    predictions: list[Any]
    losses: list[float]
    counts: list[int]

    @property
    def perplexity(self) -> float:
        """exp of the mean cross-entropy over all units."""
        return float(np.exp(sum(self.losses) / max(1, sum(self.counts))))

    def as_array(self, units: PredictionUnits) -> Answers:
        """Return the predictions in the form of `PredictionUnits.truth`, as wide as the table of all rows."""
        if not units.per_token:
            return from_lists(self.predictions, units.type)
        table = np.full((len(self.predictions), units.truth.shape[1]), -1, dtype=np.int64)
        for index, row in enumerate(self.predictions):
            table[index, : len(row)] = row
        return table


def make_result(
    trial: FewShotTrial,
    epoch: int,
    held_out: float,
    units: PredictionUnits,
    test: Indices,
    probabilities: np.ndarray[Any, Any],
) -> FewShotResult:
    """Return the result of a trial whose best weights gave these probabilities for the units of the scored rows."""
    sums, counts = units.losses(test, probabilities)
    predictions = as_lists(units.predictions(test, probabilities), units.type)
    losses = [round(float(each), _DECIMALS) for each in sums]
    return FewShotResult(trial, epoch, held_out, predictions, losses, counts.tolist())


def write_result(result: FewShotResult, folder: Path) -> None:
    """Store a result, so that a killed experiment does not repeat the trial."""
    tree = {**vars(result), "trial": asdict(result.trial)}  # `asdict` would copy every prediction
    write_text(folder / result.trial.file_name, json.dumps(tree))


def read_result(folder: Path, trial: FewShotTrial) -> FewShotResult:
    """Return the result of a trial."""
    path = folder / trial.file_name
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        result = FewShotResult(**{**tree, "trial": FewShotTrial(**tree["trial"])})
        if result.trial != trial or not len(result.predictions) == len(result.losses) == len(result.counts):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        hint = "delete the file to run the trial again"
        raise InputError("not the result of a few-shot trial", path=path, hint=hint) from None
    return result


PERPLEXITY = "perplexity"


@dataclass(frozen=True)
class LabelScores:
    """A variant with a number of labels: scores over draws and seeds at the best learning rate.

    A difference is the one that was tested, which need not be that of the means: with folds all rows are scored
    together, and perplexities are averaged as their logarithms.
    """

    labels: int
    learning_rate: float
    trials: int
    epoch: float
    scores: dict[str, Score]
    by_learning_rate: list[dict[str, float]]


@dataclass(frozen=True)
class FewShotTableRow:
    """A variant in a table, with an entry for each number of labels."""

    name: str
    run: str
    train: str
    head: str
    tasks: str
    entries: tuple[LabelScores, ...]


@dataclass(frozen=True)
class FewShotResultTable:
    """Variants in order, tested against the first; Holm's correction holds for all tests on one metric."""

    name: str
    title: str
    labels: tuple[int, ...]
    rows: tuple[FewShotTableRow, ...]


@dataclass(frozen=True)
class FewShotOutcome:
    """The result of a few-shot experiment; `metric` is the task's, `scored` the rows that trials are scored on."""

    folder: Path
    task: str
    metric: str
    scored: str
    tables: tuple[FewShotResultTable, ...]
    notes: tuple[str, ...]
    spec: FewShotSpec

    @property
    def rows(self) -> tuple[FewShotTableRow, ...]:
        """The rows of the first table."""
        return self.tables[0].rows

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that are shown and tested: the task's, accuracy and perplexity."""
        return tuple(dict.fromkeys((self.metric, "accuracy", PERPLEXITY)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "folder": str(self.folder), "spec": self.spec.model_dump(mode="json")}


@dataclass(frozen=True)
class FewShotScoring:
    """How the trials of a variant are scored; `groups` has the group of each row, permuted together."""

    spec: FewShotSpec
    draws: Sequence[Draw]
    units: PredictionUnits
    measure: Measure
    groups: Indices

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that are tested, without perplexity."""
        return tuple(dict.fromkeys((self.measure.name, "accuracy")))

    def entry(self, labels: int, results: Sequence[FewShotResult]) -> tuple[LabelScores, list[FewShotResult]]:
        """Return the scores for a number of labels, and the results at the best learning rate.

        The best learning rate has the lowest perplexity on held-out rows.
        """
        by_rate: dict[float, list[FewShotResult]] = {}
        for result in results:
            by_rate.setdefault(result.trial.learning_rate, []).append(result)
        scores = {rate: self._scores(found) for rate, found in by_rate.items()}
        rates = [{"learning_rate": rate, **self._rate_scores(by_rate[rate], scores[rate])} for rate in by_rate]
        best = min(rates, key=lambda row: row["held_out_perplexity"])["learning_rate"]
        chosen = by_rate[best]
        epoch = fmean(result.epoch for result in chosen)
        return LabelScores(labels, best, len(chosen), epoch, scores[best], rates), chosen

    def _rate_scores(self, results: Sequence[FewShotResult], scores: Mapping[str, Score]) -> dict[str, float]:
        """Return scores of one learning rate; the mean of log perplexities is robust to one failed trial."""
        held_out = float(np.exp(fmean(np.log(result.held_out_perplexity) for result in results)))
        return {
            "held_out_perplexity": held_out,
            **{name: scores[name].mean for name in (*self.metrics, PERPLEXITY)},
        }

    def _scores(self, results: Sequence[FewShotResult]) -> dict[str, Score]:
        each = [
            {
                **self.measure.all_scores(
                    self.units.truth[self.draws[result.trial.draw].test], result.as_array(self.units)
                ),
                PERPLEXITY: result.perplexity,
            }
            for result in results
        ]
        return {name: Score.of([scores[name] for scores in each]) for name in each[0]}

    def predictions(self, results: Sequence[FewShotResult]) -> Answers:
        """Return predictions for the scored rows: (trials, rows, ...); of folds each seed is one trial."""
        if self.spec.folds is None:
            return np.stack([result.as_array(self.units) for result in results])
        whole = {result.trial.seed: np.empty_like(self.units.truth) for result in results}
        for result in results:
            whole[result.trial.seed][self.draws[result.trial.draw].test] = result.as_array(self.units)
        return np.stack(list(whole.values()))

    @property
    def _scored(self) -> Indices:
        return np.arange(len(self.units.truth)) if self.spec.folds is not None else self.draws[0].test

    def losses(self, results: Sequence[FewShotResult]) -> NDArray[np.float64]:
        """Return the cross-entropy of each scored row, averaged over trials."""
        if self.spec.folds is None:
            means: NDArray[np.float64] = np.asarray([result.losses for result in results]).mean(axis=0)
            return means
        sums = np.zeros(len(self.units.truth))
        for result in results:
            sums[self.draws[result.trial.draw].test] += result.losses
        return sums / len({result.trial.seed for result in results})

    def differences(self, results: Sequence[FewShotResult], first: Sequence[FewShotResult]) -> dict[str, Difference]:
        """Return the tests of a variant's results against those of the first variant."""
        found, groups, truth = {}, self.groups[self._scored], self.units.truth[self._scored]
        both = self.predictions(results), self.predictions(first)
        for name in self.metrics:
            measure = replace(self.measure, name=name)
            score, first_score = (float(score_runs(each, truth, measure).mean()) for each in both)
            found[name] = Difference(score - first_score, metric_permutation(*both, truth, measure, groups=groups))
        difference = _pooled_perplexity(results) - _pooled_perplexity(first)
        p_value = loss_permutation(self.losses(results), self.losses(first), groups)
        return {**found, PERPLEXITY: Difference(difference, p_value)}


def _pooled_perplexity(results: Sequence[FewShotResult]) -> float:
    """Return exp of the mean cross-entropy over all units of all trials."""
    loss = sum(sum(result.losses) for result in results)
    return float(np.exp(loss / max(1, sum(sum(result.counts) for result in results))))


def score_table(
    scoring: FewShotScoring, results: Mapping[str, Sequence[FewShotResult]], labels: Sequence[int]
) -> dict[str, tuple[LabelScores, ...]]:
    """Return the entries of every variant, by its name; all but the first variant are tested against it."""
    made = {
        name: [scoring.entry(number, [each for each in found if each.trial.labels == number]) for number in labels]
        for name, found in results.items()
    }
    first, *others = made
    tests = {
        (name, index): scoring.differences(chosen, made[first][index][1])
        for name in others
        for index, (_, chosen) in enumerate(made[name])
    }
    for metric in (*scoring.metrics, PERPLEXITY):
        corrected = holm_corrected([found[metric] for found in tests.values()])
        for found, difference in zip(tests.values(), corrected, strict=True):
            assert difference is not None
            found[metric] = difference
    return {
        name: tuple(_with_tests(entry, tests.get((name, index), {})) for index, (entry, _) in enumerate(found))
        for name, found in made.items()
    }


def _with_tests(entry: LabelScores, tests: Mapping[str, Difference]) -> LabelScores:
    scores = {name: replace(score, difference=tests.get(name)) for name, score in entry.scores.items()}
    return replace(entry, scores=scores)
