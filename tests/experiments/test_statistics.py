"""The statistics of a table on made-up predictions, against slow, obvious computations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from endtask.evaluation.significance import bootstrap_interval, metric_permutation
from endtask.evaluation.task_metrics import Measure
from endtask.experiments.comparison import (
    ComparisonResult,
    ResultTable,
    TableRow,
    _holm_scores,
    _with_scores,
    results_dict,
)
from endtask.experiments.statistics import Difference, PairedTests, Score, untested_scores
from endtask.experiments.trial_results import Cost, EvaluationSet, TrialResult

ROWS, CLASSES = 120, 3
COST = Cost(flops=60.0, matmul_flops=50.0, train_seconds=2.0, seconds=3.0, text_bytes=10, parameters=7)


def evaluation(leaks: int = 0) -> EvaluationSet:
    truth = np.random.default_rng(0).integers(0, CLASSES, ROWS)
    ids = tuple(f"test-{row}" for row in range(ROWS))
    return EvaluationSet(
        "test", Measure("macro_f1"), ("a", "b", "c"), ids, truth, np.arange(ROWS) >= leaks, np.arange(ROWS)
    )


def runs(right: float, seeds: int = 2, finetune_seeds: int = 3) -> tuple[TrialResult, ...]:
    """Runs that are right in about this share of the rows."""
    truth, found = evaluation().truth, []
    for seed in range(seeds):
        random = np.random.default_rng([int(1000 * right), seed])
        wrong = (truth + random.integers(1, CLASSES, (finetune_seeds, ROWS))) % CLASSES
        predicted = np.where(random.random((finetune_seeds, ROWS)) < right, truth, wrong)
        cost = replace(COST, seconds=3.0 + seed)
        found.append(TrialResult(seed, tuple(range(finetune_seeds)), (0.5,) * finetune_seeds, predicted, cost))
    return tuple(found)


def with_predictions(run: TrialResult, predicted: NDArray[np.int64]) -> TrialResult:
    """The run with the same predictions for every fine-tuning seed."""
    return replace(run, predicted=np.tile(predicted, (len(run.finetune_seeds), 1)))


def flat(found: tuple[TrialResult, ...]) -> NDArray[np.int64]:
    return np.concatenate([run.predicted for run in found])


def row(name: str) -> TableRow:
    return TableRow(name, name, False, {}, "")


def test_plain_scores_are_those_of_sklearn() -> None:
    found, leaks = runs(0.7), evaluation(leaks=40)
    scores = _with_scores(row("a"), found, leaks)
    expected = [f1_score(leaks.truth, predicted, average="macro") for predicted in flat(found)]
    clean = [f1_score(leaks.truth[40:], predicted[40:], average="macro") for predicted in flat(found)]
    assert scores.score is not None
    assert scores.leak_free is not None
    assert scores.dev is not None
    assert (scores.score.mean, scores.score.std) == pytest.approx((np.mean(expected), np.std(expected, ddof=1)))
    assert (scores.leak_free.mean, scores.leak_free.std) == pytest.approx((np.mean(clean), np.std(clean, ddof=1)))
    assert (scores.models, scores.dev.mean, scores.dev.std) == (6, 0.5, 0.0)
    assert scores.cost == replace(COST, seconds=3.5)


def test_no_leaks_no_second_score() -> None:
    assert untested_scores(runs(0.7), evaluation())[1] is None
    everything_leaks = evaluation(leaks=ROWS)
    assert untested_scores(runs(0.7), everything_leaks)[1] is None


def test_the_tests_are_those_of_the_statistics_with_runs_in_groups() -> None:
    one, other, rows = runs(0.7), runs(0.8), evaluation(leaks=40)
    tests = PairedTests(rows, one, permutations=300)
    for scores, part in zip(tests.scores(other), (slice(0, None), slice(40, None)), strict=True):
        assert scores is not None
        assert scores.difference is not None
        truth = rows.truth[part]
        first = np.stack([run.predicted[:, part] for run in other])
        second = np.stack([run.predicted[:, part] for run in one])
        assert (scores.low, scores.high) == bootstrap_interval(first, None, truth, "macro_f1", samples=300)
        interval = bootstrap_interval(first, second, truth, "macro_f1", samples=300, paired_runs=True)
        assert (scores.difference.low, scores.difference.high) == interval  # both have the same seeds
        assert scores.difference.p_value == metric_permutation(first, second, truth, "macro_f1", permutations=300)
        means = [
            np.mean([f1_score(truth, each, average="macro") for each in flat(system)[:, part]])
            for system in (other, one)
        ]
        assert scores.difference.mean == pytest.approx(means[0] - means[1])
        assert scores.difference.low < scores.difference.mean < scores.difference.high


def test_rows_of_a_group_count_once() -> None:
    one, other, rows = runs(0.7), runs(0.8), evaluation()
    pairs = replace(rows, groups=np.arange(ROWS) // 2)
    paired, _ = PairedTests(pairs, one, permutations=300).scores(other)
    truth = rows.truth
    first, second = (np.stack([run.predicted for run in system]) for system in (other, one))
    assert paired.difference is not None
    wanted = metric_permutation(first, second, truth, "macro_f1", groups=pairs.groups, permutations=300)
    assert paired.difference.p_value == wanted
    interval = bootstrap_interval(first, None, truth, "macro_f1", groups=pairs.groups, samples=300)
    assert (paired.low, paired.high) == interval


def test_a_single_run_is_tested_against_many() -> None:
    one, rows = runs(0.7), evaluation()
    alone = runs(0.4, seeds=1, finetune_seeds=1)
    score, _ = PairedTests(rows, one, permutations=300).scores(alone)
    assert score.difference is not None
    assert score.difference.mean < -0.2
    assert score.difference.p_value == pytest.approx(1 / 301)


def test_shared_luck_cancels_where_the_seeds_are_the_same() -> None:
    """Two variants whose trials are equally lucky: the difference is sure, whichever seeds come."""
    rows, place = evaluation(), np.arange(ROWS)
    lucky = [with_predictions(run, np.where(place < 40 * seed, rows.truth, 0)) for seed, run in enumerate(runs(0.5, 3))]
    better = [with_predictions(run, np.where(place > 110, rows.truth, run.predicted[0])) for run in lucky]
    others = [replace(run, seed=seed + 9) for seed, run in enumerate(better)]
    widths = []
    for system in (better, others):
        scores, _ = PairedTests(rows, lucky, 500).scores(system)
        assert scores.difference is not None
        widths.append(scores.difference.high - scores.difference.low)
    assert widths[0] < widths[1] / 2


def test_the_reference_has_no_difference_and_equal_ones_one_of_zero() -> None:
    one, rows = runs(0.7), evaluation()
    tests = PairedTests(rows, one, permutations=100)
    assert tests.scores(one)[0].difference is None
    twin = runs(0.7)
    difference = tests.scores(twin)[0].difference
    assert difference is not None
    assert (difference.mean, difference.p_value) == (0.0, 1.0)
    assert not difference.is_significant


def test_holm_over_all_rows() -> None:
    base = Score(0.7, 0.0)
    found = _holm_scores([base, *(Score(0.8, 0.0, difference=Difference(0.1, p)) for p in (0.01, 0.04, 0.03)), None])
    assert (found[0], found[-1]) == (base, None)
    assert [each.difference.p_holm for each in found[1:-1]] == [0.03, 0.06, 0.06]  # type: ignore[union-attr]


def test_results_hold_all_that_a_table_needs() -> None:
    rows = evaluation(leaks=40)
    systems = {"a": runs(0.7), "b": runs(0.8, seeds=1)}
    table = tuple(_with_scores(row(name), found, rows) for name, found in systems.items())
    tables = (ResultTable("", "", "a", table),)
    tree = results_dict(ComparisonResult(Path("out"), rows, tables, systems, True))
    assert tree["truth"] == rows.truth.tolist()
    assert tree["leak_free"] == [0] * 40 + [1] * 80
    assert [(run["variant"], run["seed"], len(run["predicted"])) for run in tree["trials"]] == [
        ("a", 0, 3),
        ("a", 1, 3),
        ("b", 0, 3),
    ]
    again = np.asarray(tree["trials"][2]["predicted"])
    assert tree["trials"][2]["test"] == pytest.approx([f1_score(rows.truth, each, average="macro") for each in again])
    assert tree["trials"][2]["leak_free"] == pytest.approx(
        [f1_score(rows.truth[40:], each[40:], average="macro") for each in again]
    )
    assert tree["rows"][1]["score"]["mean"] == pytest.approx(np.mean(tree["trials"][2]["test"]))
