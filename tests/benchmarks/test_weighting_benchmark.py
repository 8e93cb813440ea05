"""The benchmark of learned weights: every engine trains, and the page shows the statistics."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.job import attempt
from benchmarks.results_file import read_results, write_results
from benchmarks.training.cases import SIZES, Size
from benchmarks.weighting.__main__ import run_case
from benchmarks.weighting.endtask_engine import AUTHORS, DEFAULT, EQUAL, META, PAPER, RULES, Case, Row, Setup, plan
from benchmarks.weighting.page import GOALS, summarize, weighting_table

ENGINES = [*RULES, AUTHORS]


@pytest.mark.parametrize("engine", [EQUAL, DEFAULT, AUTHORS])
def test_every_way_trains(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "128x2", Size(16, 1, 2, 16))
    case = Case(engine, "128x2", rows=2, held_out=2, device="cpu", vocabulary=64)
    row = attempt(run_case, case, Setup(tmp_path, warmup=1, steps=1))
    assert "error" not in row
    assert row["tokens"] == 3 * 2 * 128
    assert 0 < row["loss"] < 6
    weights = [value for name, value in row.items() if name.startswith("weight/")]
    assert (sum(weights) == pytest.approx(1, abs=1e-3)) if RULES.get(engine) else not weights


def test_engines_take_turns_and_the_slow_one_comes_once() -> None:
    cases = plan(ENGINES, "110m", 128, 32, "cuda", 2)
    assert [case.engine for case in cases] == [*ENGINES, *RULES]
    assert len(set(cases)) == len(cases)


def made_up(engine: str, seconds: float, repeat: int = 1) -> Row:
    case = Case(engine, "110m", 128, 32, "cuda", repeat)
    return {**asdict(case), "seconds": seconds, "steps": 10, "loss": 9.0, "tokens": 1}


def test_headline_figures_are_ratios_of_steps(tmp_path: Path) -> None:
    seconds = {EQUAL: 1.0, META: 1.2, DEFAULT: 1.05, PAPER: 1.3, AUTHORS: 6.0}
    rows = [made_up(engine, value) for engine, value in seconds.items()]
    summary = summarize(rows)
    assert set(GOALS) <= set(summary)
    assert summary["meta_step_over_equal_step"] == 1.2
    assert summary["meta_step_over_equal_step_default"] == 1.05
    assert summary["speedup_vs_authors_way"] == 5.0
    write_results("weighting", "python", rows, summary, tmp_path)
    page = weighting_table(read_results("weighting", tmp_path))
    assert "| learned weights, updated at every step | 120.0 | 1.20 |" in page


def test_a_failed_measurement_leaves_its_figures_out() -> None:
    rows = [made_up(EQUAL, 1.0), made_up(META, 1.5), made_up(META, 1.1, 2), made_up(META, 1.2, 3)]
    rows.append({**asdict(Case(AUTHORS, "110m", 128, 32, "cuda")), "error": "out of memory"})
    summary = summarize(rows)
    assert summary["meta_step_over_equal_step"] == 1.2  # the median
    assert "speedup_vs_authors_way" not in summary
