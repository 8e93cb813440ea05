"""The results of few-shot trials, and tables of scores by variant and number of labels, with tests."""

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
from endtask.io.parsing import parse_json
from endtask.task.targets import Answers, as_lists, from_lists

_DECIMALS = 6
PERPLEXITY = "perplexity"


@dataclass(frozen=True)
class FewShotResult:
    """The result of a trial: its best epoch on held-out rows, their perplexity, and predictions of the scored rows.

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
        """The exponential of the mean cross-entropy over all units."""
        return float(np.exp(sum(self.losses) / max(1, sum(self.counts))))

    def as_array(self, units: PredictionUnits) -> Answers:
        """Return the predictions in the form of `PredictionUnits.truth`, padded to the width of all rows."""
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
    """Return the result of a trial from the probabilities of the scored rows' units under its best weights."""
    sums, counts = units.losses(test, probabilities)
    predictions = as_lists(units.predictions(test, probabilities), units.type)
    losses = [round(float(loss), _DECIMALS) for loss in sums]
    return FewShotResult(trial, epoch, held_out, predictions, losses, counts.tolist())


def write_result(result: FewShotResult, folder: Path) -> None:
    """Write a result, so that a killed experiment does not repeat the trial."""
    tree = {**vars(result), "trial": asdict(result.trial)}  # `asdict` would copy every prediction
    write_text(folder / result.trial.file_name, json.dumps(tree))


def read_result(folder: Path, trial: FewShotTrial) -> FewShotResult:
    """Return the stored result of a trial."""
    path = folder / trial.file_name
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        result = FewShotResult(**{**tree, "trial": FewShotTrial(**tree["trial"])})
        if result.trial != trial or not len(result.predictions) == len(result.losses) == len(result.counts):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        hint = "delete the file to run the trial again"
        raise InputError("not the result of a few-shot trial", path=path, hint=hint) from None
    return result


@dataclass(frozen=True)
class LabelScores:
    """The scores of a variant with a number of labels, over draws and seeds, at the best learning rate.

    The tested difference may not be that of the means: with folds all rows are scored together, and perplexities are
    averaged as their logarithms.
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
    """Variants in order, tested against the first; Holm's correction is for all tests on a metric."""

    name: str
    title: str
    labels: tuple[int, ...]
    rows: tuple[FewShotTableRow, ...]


@dataclass(frozen=True)
class FewShotOutcome:
    """The result of a few-shot experiment: the task's metric, the scored rows, the tables and notes."""

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
        """The reported and tested metrics: the task's, accuracy and perplexity."""
        return tuple(dict.fromkeys((self.metric, "accuracy", PERPLEXITY)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "folder": str(self.folder), "spec": self.spec.model_dump(mode="json")}


@dataclass(frozen=True)
class FewShotScoring:
    """Scores the trials of variants; `groups` has the group of each row, which is permuted as a whole."""

    spec: FewShotSpec
    draws: Sequence[Draw]
    units: PredictionUnits
    measure: Measure
    groups: Indices

    @property
    def metrics(self) -> tuple[str, ...]:
        """The tested metrics except perplexity."""
        return tuple(dict.fromkeys((self.measure.name, "accuracy")))

    def entry(self, labels: int, results: Sequence[FewShotResult]) -> tuple[LabelScores, list[FewShotResult]]:
        """Return the scores for a number of labels, and the results at the best learning rate.

        The best learning rate has the lowest perplexity on held-out rows.
        """
        by_rate: dict[float, list[FewShotResult]] = {}
        for result in results:
            by_rate.setdefault(result.trial.learning_rate, []).append(result)
        scores = {rate: self._scores(rate_results) for rate, rate_results in by_rate.items()}
        rates = [{"learning_rate": rate, **self._rate_scores(by_rate[rate], scores[rate])} for rate in by_rate]
        best = min(rates, key=lambda row: row["held_out_perplexity"])["learning_rate"]
        best_results = by_rate[best]
        epoch = fmean(result.epoch for result in best_results)
        return LabelScores(labels, best, len(best_results), epoch, scores[best], rates), best_results

    def _rate_scores(self, results: Sequence[FewShotResult], scores: Mapping[str, Score]) -> dict[str, float]:
        """Return the scores of a learning rate; the mean of log perplexities is robust to a failed trial."""
        held_out = float(np.exp(fmean(np.log(result.held_out_perplexity) for result in results)))
        return {
            "held_out_perplexity": held_out,
            **{name: scores[name].mean for name in (*self.metrics, PERPLEXITY)},
        }

    def _scores(self, results: Sequence[FewShotResult]) -> dict[str, Score]:
        by_trial = []
        for result in results:
            truth = self.units.truth[self.draws[result.trial.draw].test]
            scores = self.measure.all_scores(truth, result.as_array(self.units))
            by_trial.append({**scores, PERPLEXITY: result.perplexity})
        return {name: Score.of([scores[name] for scores in by_trial]) for name in by_trial[0]}

    def predictions(self, results: Sequence[FewShotResult]) -> Answers:
        """Return predictions for the scored rows, (trials, rows, ...); the folds of a seed are joined to one trial."""
        if self.spec.folds is None:
            return np.stack([result.as_array(self.units) for result in results])
        by_seed = {result.trial.seed: np.empty_like(self.units.truth) for result in results}
        for result in results:
            by_seed[result.trial.seed][self.draws[result.trial.draw].test] = result.as_array(self.units)
        return np.stack(list(by_seed.values()))

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
        tests, groups, truth = {}, self.groups[self._scored], self.units.truth[self._scored]
        predicted, reference = self.predictions(results), self.predictions(first)
        for name in self.metrics:
            measure = replace(self.measure, name=name)
            score, reference_score = (
                float(score_runs(array, truth, measure).mean()) for array in (predicted, reference)
            )
            p_value = metric_permutation(predicted, reference, truth, measure, groups=groups)
            tests[name] = Difference(score - reference_score, p_value)
        difference = _pooled_perplexity(results) - _pooled_perplexity(first)
        p_value = loss_permutation(self.losses(results), self.losses(first), groups)
        return {**tests, PERPLEXITY: Difference(difference, p_value)}


def _pooled_perplexity(results: Sequence[FewShotResult]) -> float:
    """Return the exponential of the mean cross-entropy over all units of all trials."""
    loss = sum(sum(result.losses) for result in results)
    return float(np.exp(loss / max(1, sum(sum(result.counts) for result in results))))


def score_table(
    scoring: FewShotScoring, results: Mapping[str, Sequence[FewShotResult]], labels: Sequence[int]
) -> dict[str, tuple[LabelScores, ...]]:
    """Return the entries of every variant by name; all variants are tested against the first."""
    entries = {
        name: [
            scoring.entry(number, [result for result in variant_results if result.trial.labels == number])
            for number in labels
        ]
        for name, variant_results in results.items()
    }
    first, *others = entries
    tests = {
        (name, index): scoring.differences(best_results, entries[first][index][1])
        for name in others
        for index, (_, best_results) in enumerate(entries[name])
    }
    for metric in (*scoring.metrics, PERPLEXITY):
        corrected = holm_corrected([differences[metric] for differences in tests.values()])
        for differences, difference in zip(tests.values(), corrected, strict=True):
            assert difference is not None
            differences[metric] = difference
    return {
        name: tuple(_with_tests(scores, tests.get((name, index), {})) for index, (scores, _) in enumerate(pairs))
        for name, pairs in entries.items()
    }


def _with_tests(entry: LabelScores, tests: Mapping[str, Difference]) -> LabelScores:
    scores = {name: replace(score, difference=tests.get(name)) for name, score in entry.scores.items()}
    return replace(entry, scores=scores)
