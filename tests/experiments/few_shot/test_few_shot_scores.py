"""The few-shot table: the chosen rate, the tests, and the text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.experiments.few_shot.few_shot_report import (
    chart,
    metric_table,
    score_in_words,
    verdict,
    write_few_shot_page,
)
from endtask.experiments.few_shot.few_shot_scores import (
    FewShotOutcome,
    FewShotResult,
    FewShotResultTable,
    FewShotScoring,
    FewShotTableRow,
    LabelScores,
    score_table,
)
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.label_draws import Draw
from endtask.experiments.statistics import Difference, loss_permutation

TRUTH = np.arange(60) % 2


class FakeUnits:
    """Sixty rows, each a class of two."""

    type = "text"
    per_token = False
    truth = TRUTH


def scoring(plan: FewShotSpec, groups: int = 60) -> FewShotScoring:
    if plan.folds is None:
        draws = [Draw(np.arange(0), np.arange(0), np.arange(60)) for _ in range(plan.samples)]
    else:
        draws = [Draw(np.arange(0), np.arange(0), np.arange(n, 60, plan.folds)) for n in range(plan.folds)]
    return FewShotScoring(plan, draws, FakeUnits(), Measure("accuracy"), np.arange(60) % groups)  # type: ignore[arg-type]


def result(key: FewShotTrial, rows: np.ndarray, *, wrong: int, held_out: float = 1.5) -> FewShotResult:
    """So many wrong answers, each of which costs 2 where right ones cost 0.1."""
    answers = TRUTH[rows].copy()
    answers[:wrong] = 1 - answers[:wrong]
    surprise = np.where(answers == TRUTH[rows], 0.1, 2.0)
    return FewShotResult(key, 1, held_out, answers.tolist(), surprise.tolist(), [1] * len(rows))


def differences_of(entries: tuple[LabelScores, ...]) -> dict[str, Difference]:
    scores = entries[0].scores
    return {name: score.difference for name, score in scores.items() if score.difference is not None}


def runs_of(plan: FewShotSpec, wrong: int, rate: float = 1e-3, held_out: float = 1.5) -> list[FewShotResult]:
    keys = [FewShotTrial(9, draw, seed, rate) for draw in range(plan.folds or plan.samples) for seed in plan.seeds]
    tests = scoring(plan).draws
    return [result(key, tests[key.draw].test, wrong=wrong, held_out=held_out) for key in keys]


@pytest.mark.parametrize(("plan", "wrong"), [(FewShotSpec(samples=3), (30, 2)), (FewShotSpec(folds=3), (10, 1))])
def test_a_large_lead_is_clear_and_none_is_not(plan: FewShotSpec, wrong: tuple[int, int]) -> None:
    variants = {"first": wrong[0], "better": wrong[1], "same": wrong[0]}
    found = score_table(scoring(plan), {name: runs_of(plan, number) for name, number in variants.items()}, (9,))
    better, same = differences_of(found["better"]), differences_of(found["same"])
    assert set(better) == {"accuracy", "perplexity"}
    assert all(test.is_significant for test in better.values())
    assert better["accuracy"].mean > 0 > better["perplexity"].mean
    assert all(test.p_holm == 1 for test in same.values())
    assert not differences_of(found["first"])


def test_the_rate_is_chosen_on_held_out_rows_not_by_the_score() -> None:
    plan = FewShotSpec(samples=2)
    found = [*runs_of(plan, 1, 1e-2, held_out=1.9), *runs_of(plan, 20, 1e-3, held_out=1.2)]
    entry, chosen = scoring(plan).entry(9, found)
    assert entry.learning_rate == 1e-3
    assert {one.trial.learning_rate for one in chosen} == {1e-3}
    assert entry.scores["accuracy"].mean == pytest.approx(40 / 60)
    assert entry.scores["perplexity"].mean == pytest.approx(np.exp((40 * 0.1 + 20 * 2) / 60))
    assert [rate["held_out_perplexity"] for rate in entry.by_learning_rate] == pytest.approx([1.9, 1.2])


def test_losses_are_tested_as_a_sign_test_would() -> None:
    random = np.random.default_rng(0)
    noise = random.normal(size=200)
    alone = np.arange(200)
    assert loss_permutation(noise, np.zeros(200), alone) > 0.01
    assert loss_permutation(noise + 0.5, np.zeros(200), alone) < 0.001
    assert loss_permutation(np.array([1.0, 1.0]), np.zeros(2), alone[:2]) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("plan", [FewShotSpec(samples=3), FewShotSpec(folds=3)])
def test_rows_of_a_group_are_swapped_together(plan: FewShotSpec) -> None:
    variants = {"first": runs_of(plan, 10), "better": runs_of(plan, 1)}
    tests = differences_of(score_table(scoring(plan, groups=2), variants, (9,))["better"])
    # Two groups have four swaps: all or none of them change the difference as much as it is.
    assert all(test.p_value >= 0.45 for test in tests.values())


def in_folds(plan: FewShotSpec, wrong_rows: list[int]) -> list[FewShotResult]:
    """Runs by folds that are wrong in these rows."""
    answers = np.where(np.isin(np.arange(60), wrong_rows), 1 - TRUTH, TRUTH)
    keys = [FewShotTrial(9, draw, seed, 1e-3) for draw in range(plan.folds or 0) for seed in plan.seeds]
    tests = [scoring(plan).draws[key.draw].test for key in keys]
    pairs = zip(keys, tests, strict=True)
    return [
        FewShotResult(key, 1, 1.5, answers[rows].tolist(), [0.1] * len(rows), [1] * len(rows)) for key, rows in pairs
    ]


def test_the_lead_over_folds_is_that_of_all_rows_together_as_tested() -> None:
    plan = FewShotSpec(folds=2)  # even rows, all of class 0, then odd ones, all of class 1
    by_f1 = replace(scoring(plan), measure=Measure("macro_f1"))
    # A fold of one class has a macro-F1 of 1 or less than 1/2: one slip in each costs more than many in one.
    variants = {"first": in_folds(plan, [0, 1]), "other": in_folds(plan, list(range(0, 40, 2)))}
    cells = score_table(by_f1, variants, (9,))
    first, other = cells["first"][0], cells["other"][0]
    test = differences_of(cells["other"])["macro_f1"]
    assert other.scores["macro_f1"].mean > first.scores["macro_f1"].mean
    pooled = [score_runs(by_f1.predictions(variants[name]), TRUTH, "macro_f1").mean() for name in ("other", "first")]
    assert test.mean == pytest.approx(pooled[0] - pooled[1])
    assert test.mean < -0.2
    assert test.is_significant


@pytest.mark.parametrize("plan", [FewShotSpec(samples=5, seeds=(0,)), FewShotSpec(folds=5, seeds=(0,))])
def test_the_lead_in_perplexity_is_of_mean_logarithms_as_tested(plan: FewShotSpec) -> None:
    first = runs_of(plan, 60)
    *sound, last = runs_of(plan, 0)
    broken = replace(last, losses=[5.0] * len(last.losses))
    cells = score_table(scoring(plan), {"first": first, "other": [*sound, broken]}, (9,))
    test = differences_of(cells["other"])["perplexity"]
    # The means of perplexities say the contrary, for the sake of one run.
    assert cells["other"][0].scores["perplexity"].mean > 4 * cells["first"][0].scores["perplexity"].mean
    assert test.mean == pytest.approx(np.exp((4 * 0.1 + 5) / 5) - np.exp(2))
    assert test.mean < 0
    assert test.is_significant


def test_the_page_names_and_marks(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=3)
    trials = {"<first>": runs_of(plan, 30), "better": runs_of(plan, 2)}
    found = score_table(scoring(plan), trials, (9,))
    rows = tuple(FewShotTableRow(name, name, "head", "new", "main", entries) for name, entries in found.items())
    table = FewShotResultTable("", "", (9,), rows)
    outcome = FewShotOutcome(tmp_path, "toy", "accuracy", "test", (table,), ("a note",), plan)
    assert outcome.metrics == ("accuracy", "perplexity")
    shown = metric_table(outcome, table, "accuracy").rows
    assert shown == [["<first>", "50.0 ± 0.0"], ["better", "96.7 ± 0.0*"]]
    assert score_in_words(found["better"][0], "perplexity").endswith("*")
    assert "Clearly different: better (+46.7 points, Holm's p = 0.0001)" in verdict(outcome)
    assert "perplexity by the number of labels" in chart(table, "perplexity")
    page = write_few_shot_page(outcome).read_text(encoding="utf-8")
    assert "&lt;first&gt;" in page
    assert "<first>" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
