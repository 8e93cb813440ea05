"""The figures of a table on made-up predictions, against slow and obvious ways to the same figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from endtask.compare.outcome import Lead, Outcome, Row, Statistics, plain_row, with_holm
from endtask.compare.results import results_of_comparison
from endtask.compare.scored import Cost, Judged, Scored
from endtask.evaluation.significance import bootstrap_interval, metric_permutation
from endtask.evaluation.task_metrics import Measure

ROWS, CLASSES = 120, 3
COST = Cost(flops=60.0, matmul_flops=50.0, train_seconds=2.0, seconds=3.0, text_bytes=10, parameters=7)


def judged(leaks: int = 0) -> Judged:
    truth = np.random.default_rng(0).integers(0, CLASSES, ROWS)
    ids = tuple(f"test-{row}" for row in range(ROWS))
    return Judged("test", Measure("macro_f1"), ("a", "b", "c"), ids, truth, np.arange(ROWS) >= leaks, np.arange(ROWS))


def runs(right: float, seeds: int = 2, finetune_seeds: int = 3) -> tuple[Scored, ...]:
    """Runs that are right in about this share of the rows."""
    truth, found = judged().truth, []
    for seed in range(seeds):
        random = np.random.default_rng([int(1000 * right), seed])
        wrong = (truth + random.integers(1, CLASSES, (finetune_seeds, ROWS))) % CLASSES
        predicted = np.where(random.random((finetune_seeds, ROWS)) < right, truth, wrong)
        cost = replace(COST, seconds=3.0 + seed)
        found.append(Scored(seed, tuple(range(finetune_seeds)), (0.5,) * finetune_seeds, predicted, cost))
    return tuple(found)


def with_predictions(run: Scored, predicted: NDArray[np.int64]) -> Scored:
    """The run with the same predictions for every fine-tuning seed."""
    return replace(run, predicted=np.tile(predicted, (len(run.finetune_seeds), 1)))


def flat(found: tuple[Scored, ...]) -> NDArray[np.int64]:
    return np.concatenate([run.predicted for run in found])


def row(name: str) -> Row:
    return Row(name, False, {}, "")


def test_plain_figures_are_those_of_sklearn() -> None:
    found, leaks = runs(0.7), judged(leaks=40)
    statistics = plain_row(row("a"), found, leaks)
    scores = [f1_score(leaks.truth, predicted, average="macro") for predicted in flat(found)]
    clean = [f1_score(leaks.truth[40:], predicted[40:], average="macro") for predicted in flat(found)]
    assert statistics.score is not None
    assert statistics.leak_free is not None
    assert statistics.dev is not None
    assert (statistics.score.mean, statistics.score.std) == pytest.approx((np.mean(scores), np.std(scores, ddof=1)))
    assert (statistics.leak_free.mean, statistics.leak_free.std) == pytest.approx(
        (np.mean(clean), np.std(clean, ddof=1))
    )
    assert (statistics.runs, statistics.dev.mean, statistics.dev.std) == (6, 0.5, 0.0)
    assert statistics.cost == replace(COST, seconds=3.5)


def test_no_leaks_no_second_score() -> None:
    assert plain_row(row("a"), runs(0.7), judged()).leak_free is None
    everything_leaks = judged(leaks=ROWS)
    assert plain_row(row("a"), runs(0.7), everything_leaks).leak_free is None


def test_the_tests_are_those_of_the_statistics_with_runs_in_groups() -> None:
    one, other, rows = runs(0.7), runs(0.8), judged(leaks=40)
    tests = Statistics(rows, one, {}, permutations=300)
    found = tests.row(plain_row(row("b"), other, rows), other)
    for statistics, part in ((found.score, slice(0, None)), (found.leak_free, slice(40, None))):
        assert statistics is not None
        assert statistics.lead is not None
        truth = rows.truth[part]
        first = np.stack([run.predicted[:, part] for run in other])
        second = np.stack([run.predicted[:, part] for run in one])
        assert (statistics.low, statistics.high) == bootstrap_interval(first, None, truth, "macro_f1", samples=300)
        interval = bootstrap_interval(first, second, truth, "macro_f1", samples=300, paired_runs=True)
        assert (statistics.lead.low, statistics.lead.high) == interval  # both have the same seeds
        assert statistics.lead.p_value == metric_permutation(first, second, truth, "macro_f1", permutations=300)
        means = [
            np.mean([f1_score(truth, each, average="macro") for each in flat(system)[:, part]])
            for system in (other, one)
        ]
        assert statistics.lead.mean == pytest.approx(means[0] - means[1])
        assert statistics.lead.low < statistics.lead.mean < statistics.lead.high


def test_rows_of_a_group_count_once() -> None:
    one, other, rows = runs(0.7), runs(0.8), judged()
    pairs = replace(rows, groups=np.arange(ROWS) // 2)
    alone, paired = (
        Statistics(each, one, {}, permutations=300).row(plain_row(row("b"), other, each), other)
        for each in (rows, pairs)
    )
    truth = rows.truth
    first, second = (np.stack([run.predicted for run in system]) for system in (other, one))
    assert paired.score is not None
    assert paired.score.lead is not None
    wanted = metric_permutation(first, second, truth, "macro_f1", groups=pairs.groups, permutations=300)
    assert paired.score.lead.p_value == wanted
    interval = bootstrap_interval(first, None, truth, "macro_f1", groups=pairs.groups, samples=300)
    assert (paired.score.low, paired.score.high) == interval
    assert alone.mark != paired.mark  # figures of other groups are not taken for these


def test_a_single_run_is_tested_against_many() -> None:
    one, rows = runs(0.7), judged()
    alone = runs(0.4, seeds=1, finetune_seeds=1)
    found = Statistics(rows, one, {}, permutations=300).row(plain_row(row("tfidf"), alone, rows), alone)
    assert found.score is not None
    assert found.score.lead is not None
    assert found.score.lead.mean < -0.2
    assert found.score.lead.p_value == pytest.approx(1 / 301)


def test_shared_luck_cancels_where_the_seeds_are_the_same() -> None:
    """Two cells whose every run is as lucky as the other's: the lead is sure, whichever seeds come."""
    rows, place = judged(), np.arange(ROWS)
    lucky = [with_predictions(run, np.where(place < 40 * seed, rows.truth, 0)) for seed, run in enumerate(runs(0.5, 3))]
    better = [with_predictions(run, np.where(place > 110, rows.truth, run.predicted[0])) for run in lucky]
    others = [replace(run, seed=seed + 9) for seed, run in enumerate(better)]
    widths = []
    for system in (better, others):
        statistics = Statistics(rows, lucky, {}, 500).row(plain_row(row("b"), system, rows), system).score
        assert statistics is not None
        assert statistics.lead is not None
        widths.append(statistics.lead.high - statistics.lead.low)
    assert widths[0] < widths[1] / 2


def test_the_cell_itself_has_no_lead_and_equal_ones_none_either() -> None:
    one, rows = runs(0.7), judged()
    tests = Statistics(rows, one, {}, permutations=100)
    assert tests.row(plain_row(row("a"), one, rows), one).score.lead is None  # type: ignore[union-attr]
    twin = runs(0.7)
    lead = tests.row(plain_row(row("b"), twin, rows), twin).score.lead  # type: ignore[union-attr]
    assert lead is not None
    assert (lead.mean, lead.p_value) == (0.0, 1.0)
    assert not lead.is_clear


def test_known_rows_are_taken_over_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, rows = runs(0.7), runs(0.8), judged()
    first = Statistics(rows, one, {}, permutations=100).row(plain_row(row("b"), other, rows), other)
    known = {first.mark: Outcome(Path(), rows, "a", (first,), {}, True).statistics()["rows"][0]}
    calls: list[object] = []

    def counted(*arguments: object, **options: object) -> float:
        calls.append(arguments)
        return 0.5

    monkeypatch.setattr("endtask.compare.outcome.metric_permutation", counted)
    again = Statistics(rows, one, known, permutations=100)
    assert again.row(plain_row(row("b"), other, rows), other) == first
    assert calls == []
    twin = runs(0.7)
    known_of_one = {again.row(plain_row(row("a"), one, rows), one).mark}
    assert again.row(plain_row(row("twin"), twin, rows), twin).mark not in known_of_one  # it has a lead, of 0
    calls.clear()
    changed = runs(0.81)
    assert again.row(plain_row(row("b"), changed, rows), changed).mark != first.mark
    assert (
        Statistics(rows, changed, known, permutations=100).row(plain_row(row("b"), other, rows), other).mark
        != first.mark
    )
    assert Statistics(rows, one, known, permutations=99).row(plain_row(row("b"), other, rows), other).mark != first.mark
    assert len(calls) == 3
    for name, value in (("VERSION", 0), ("LEVEL", 0.9)):  # another way to count, another level
        with monkeypatch.context() as changed_constant:
            changed_constant.setattr(f"endtask.compare.outcome.{name}", value)
            assert again.row(plain_row(row("b"), other, rows), other).mark != first.mark


def test_holm_over_all_rows() -> None:
    rows = judged()
    base = plain_row(row("a"), runs(0.7), rows)
    assert base.score is not None
    p_values = [0.01, 0.04, 0.03]
    table = [base] + [replace(base, score=replace(base.score, lead=Lead(0.1, 0.0, 0.2, p))) for p in p_values]
    found = with_holm(table)
    assert found[0] == base
    assert [each.score.lead.p_holm for each in found[1:]] == [0.03, 0.06, 0.06]  # type: ignore[union-attr]
    assert with_holm([base]) == (base,)


def test_results_hold_all_that_a_table_needs() -> None:
    rows = judged(leaks=40)
    systems = {"a": runs(0.7), "b": runs(0.8, seeds=1)}
    table = tuple(plain_row(row(name), found, rows) for name, found in systems.items())
    tree = results_of_comparison(Outcome(Path("out"), rows, "a", table, systems, True))
    assert tree["truth"] == rows.truth.tolist()
    assert tree["leak_free"] == [0] * 40 + [1] * 80
    assert [(run["cell"], run["seed"], len(run["predicted"])) for run in tree["runs"]] == [
        ("a", 0, 3),
        ("a", 1, 3),
        ("b", 0, 3),
    ]
    again = np.asarray(tree["runs"][2]["predicted"])
    assert tree["runs"][2]["test"] == pytest.approx([f1_score(rows.truth, each, average="macro") for each in again])
    assert tree["runs"][2]["leak_free"] == pytest.approx(
        [f1_score(rows.truth[40:], each[40:], average="macro") for each in again]
    )
    assert tree["rows"][1]["score"]["mean"] == pytest.approx(np.mean(tree["runs"][2]["test"]))
