"""The table: which rate counts, what is tested, and how it reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.few_examples.draws import Draw
from endtask.few_examples.outcome import Judge, Outcome, Row, judged
from endtask.few_examples.page import chart, in_words, table, verdict, write_page
from endtask.few_examples.paired import surprise_permutation
from endtask.few_examples.plan import Key, Plan
from endtask.few_examples.result import Result

TRUTH = np.arange(60) % 2


class FakeUnits:
    """Sixty rows, each a class of two."""

    kind = "text"
    truth = TRUTH


def judge(plan: Plan, groups: int = 60) -> Judge:
    if plan.folds is None:
        draws = [Draw(np.arange(0), np.arange(0), np.arange(60)) for _ in range(plan.samples)]
    else:
        draws = [Draw(np.arange(0), np.arange(0), np.arange(n, 60, plan.folds)) for n in range(plan.folds)]
    return Judge(plan, draws, FakeUnits(), Measure("accuracy"), np.arange(60) % groups)  # type: ignore[arg-type]


def result(key: Key, rows: np.ndarray, *, wrong: int, held_out: float = 1.5) -> Result:
    """So many wrong answers, each of which costs 2 where right ones cost 0.1."""
    answers = TRUTH[rows].copy()
    answers[:wrong] = 1 - answers[:wrong]
    surprise = np.where(answers == TRUTH[rows], 0.1, 2.0)
    return Result(key, 1, held_out, answers.tolist(), surprise.tolist(), [1] * len(rows))


def runs_of(plan: Plan, wrong: int, rate: float = 1e-3, held_out: float = 1.5) -> list[Result]:
    keys = [Key(9, draw, seed, rate) for draw in range(plan.folds or plan.samples) for seed in plan.seeds]
    tests = judge(plan).draws
    return [result(key, tests[key.draw].test, wrong=wrong, held_out=held_out) for key in keys]


@pytest.mark.parametrize(("plan", "wrong"), [(Plan(samples=3), (30, 2)), (Plan(folds=3), (10, 1))])
def test_a_large_lead_is_clear_and_none_is_not(plan: Plan, wrong: tuple[int, int]) -> None:
    arms = {"first": wrong[0], "better": wrong[1], "same": wrong[0]}
    cells = judged(judge(plan), {name: runs_of(plan, number) for name, number in arms.items()}, (9,))
    better, same = cells["better"][0].tests, cells["same"][0].tests
    assert set(better) == {"accuracy", "perplexity"}
    assert all(test.is_clear for test in better.values())
    assert better["accuracy"].lead > 0 > better["perplexity"].lead
    assert all(test.p_holm == 1 for test in same.values())
    assert not cells["first"][0].tests


def test_the_rate_is_chosen_on_held_out_rows_not_by_the_score() -> None:
    plan = Plan(samples=2)
    found = [*runs_of(plan, 1, 1e-2, held_out=1.9), *runs_of(plan, 20, 1e-3, held_out=1.2)]
    cell, kept = judge(plan).cell(9, found)
    assert cell.learning_rate == 1e-3
    assert {one.key.rate for one in kept} == {1e-3}
    assert cell.scores["accuracy"]["mean"] == pytest.approx(40 / 60)
    assert cell.scores["perplexity"]["mean"] == pytest.approx(np.exp((40 * 0.1 + 20 * 2) / 60))
    assert [rate["held_out_perplexity"] for rate in cell.rates] == pytest.approx([1.9, 1.2])


def test_surprise_is_tested_as_a_sign_test_would() -> None:
    random = np.random.default_rng(0)
    noise = random.normal(size=200)
    alone = np.arange(200)
    assert surprise_permutation(noise, np.zeros(200), alone) > 0.01
    assert surprise_permutation(noise + 0.5, np.zeros(200), alone) < 0.001
    assert surprise_permutation(np.array([1.0, 1.0]), np.zeros(2), alone[:2]) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("plan", [Plan(samples=3), Plan(folds=3)])
def test_rows_of_a_group_are_swapped_together(plan: Plan) -> None:
    arms = {"first": runs_of(plan, 10), "better": runs_of(plan, 1)}
    tests = judged(judge(plan, groups=2), arms, (9,))["better"][0].tests
    # Two groups have four swaps: all or none of them change the difference as much as it is.
    assert all(test.p_value >= 0.45 for test in tests.values())


def in_folds(plan: Plan, wrong_rows: list[int]) -> list[Result]:
    """Runs by folds that are wrong in these rows."""
    answers = np.where(np.isin(np.arange(60), wrong_rows), 1 - TRUTH, TRUTH)
    keys = [Key(9, draw, seed, 1e-3) for draw in range(plan.folds or 0) for seed in plan.seeds]
    tests = [judge(plan).draws[key.draw].test for key in keys]
    pairs = zip(keys, tests, strict=True)
    return [Result(key, 1, 1.5, answers[rows].tolist(), [0.1] * len(rows), [1] * len(rows)) for key, rows in pairs]


def test_the_lead_over_folds_is_that_of_all_rows_together_as_tested() -> None:
    plan = Plan(folds=2)  # even rows, all of class 0, then odd ones, all of class 1
    by_f1 = replace(judge(plan), measure=Measure("macro_f1"))
    # A fold of one class has a macro-F1 of 1 or less than 1/2: one slip in each costs more than many in one.
    arms = {"first": in_folds(plan, [0, 1]), "other": in_folds(plan, list(range(0, 40, 2)))}
    cells = judged(by_f1, arms, (9,))
    first, other = cells["first"][0], cells["other"][0]
    test = other.tests["macro_f1"]
    assert other.scores["macro_f1"]["mean"] > first.scores["macro_f1"]["mean"]
    pooled = [score_runs(by_f1.answers(arms[name]), TRUTH, "macro_f1").mean() for name in ("other", "first")]
    assert test.lead == pytest.approx(pooled[0] - pooled[1])
    assert test.lead < -0.2
    assert test.is_clear


@pytest.mark.parametrize("plan", [Plan(samples=5, seeds=(0,)), Plan(folds=5, seeds=(0,))])
def test_the_lead_in_perplexity_is_of_mean_logarithms_as_tested(plan: Plan) -> None:
    first = runs_of(plan, 60)
    *sound, last = runs_of(plan, 0)
    broken = replace(last, surprise=[5.0] * len(last.surprise))
    cells = judged(judge(plan), {"first": first, "other": [*sound, broken]}, (9,))
    test = cells["other"][0].tests["perplexity"]
    # The means of perplexities say the contrary, for the sake of one run.
    assert cells["other"][0].scores["perplexity"]["mean"] > 4 * cells["first"][0].scores["perplexity"]["mean"]
    assert test.lead == pytest.approx(np.exp((4 * 0.1 + 5) / 5) - np.exp(2))
    assert test.lead < 0
    assert test.is_clear


def test_the_page_names_and_marks(tmp_path: Path) -> None:
    plan = Plan(samples=3)
    arms = {"<first>": runs_of(plan, 30), "better": runs_of(plan, 2)}
    cells = judged(judge(plan), arms, (9,))
    rows = tuple(Row(name, name, "head", "new", "main", found) for name, found in cells.items())
    outcome = Outcome(tmp_path, "toy", "accuracy", (9,), "test", rows, ("a note",), plan)
    assert outcome.metrics == ("accuracy", "perplexity")
    assert table(outcome, "accuracy") == [["<first>", "50.0 ± 0.0"], ["better", "96.7 ± 0.0*"]]
    assert in_words(cells["better"][0], "perplexity").endswith("*")
    assert "Clearly different: better (+46.7 points, Holm's p = 0.0001)" in verdict(outcome)
    assert "perplexity by the number of labels" in chart(outcome, "perplexity")
    page = write_page(outcome).read_text(encoding="utf-8")
    assert "&lt;first&gt;" in page
    assert "<first>" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
