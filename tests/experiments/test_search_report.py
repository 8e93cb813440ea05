"""The page, the picture and the table of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.experiments.search_report import chart, print_search, verdict, write_search_page
from endtask.experiments.search_result import SearchResult, SearchTrial
from endtask.reporting.format import in_words


def grid(folder: Path, *, trials: int = 4, **spec: Any) -> SearchResult:
    space = {"pretrain.weighting.rho1": [1, 19], "pretrain.objectives.task.rho2": [20.0, 100.0]}
    values = [
        {"pretrain.weighting.rho1": rho1, "pretrain.objectives.task.rho2": rho2}
        for rho1 in (1, 19)
        for rho2 in (20.0, 100.0)
    ]
    done = tuple(
        SearchTrial(
            number, values[number], dev=(0.5 + number / 10, 0.52 + number / 10), seconds=60.0, tokens=5000, flops=1e12
        )
        for number in range(trials)
    )
    whole = {"strategy": "grid", "space": space, "trial_count": 4, "budget": "4min", "budget_per_trial": "60s"}
    return SearchResult(folder, {**whole, "metric": "macro_f1", **spec}, done)


WINNER = {"number": 3, "folder": "trials/003", "split": "test", "rows": 139, "mean": 0.7654, "std": 0.01}


def test_the_verdict(tmp_path: Path) -> None:
    half = grid(tmp_path, trials=2)
    expected = "Best of 2 of 4 trials: pretrain.weighting.rho1 = 1, pretrain.objectives.task.rho2 = 100, macro-F1 61.0 ± 1.4 on dev."
    assert verdict(half) == expected
    ended = SearchResult(tmp_path, half.spec, grid(tmp_path).trials, WINNER)
    assert verdict(ended).endswith("81.0 ± 1.4 on dev, 76.5 ± 1.0 on test (139 rows).")
    on_dev = SearchResult(tmp_path, half.spec, grid(tmp_path).trials, {**WINNER, "split": "dev"})
    assert verdict(on_dev).endswith("on dev.")
    assert verdict(SearchResult(tmp_path, half.spec)) == "No trial has been scored yet."


def test_the_page(tmp_path: Path) -> None:
    record = grid(tmp_path)
    failed = SearchResult(
        tmp_path, record.spec, (*record.trials[:3], SearchTrial(3, record.trials[3].values, failure="a < b"))
    )
    page = write_search_page(failed).read_text(encoding="utf-8")
    assert '<mark><a href="trials/002/report.html">3</a></mark>' in page
    assert "Trial 4 failed: a &lt; b" in page
    assert page.count("/report.html") == 4
    assert "3 min 0 s" in page  # three trials of a minute
    assert "http" not in page.replace("http-equiv", "")


def test_the_picture_of_a_grid_has_a_bar_for_each_trial(tmp_path: Path) -> None:
    picture = str(chart(grid(tmp_path)))
    assert picture.count('<rect class="bar series-') == 4 + 2  # and a sample of each in the legend
    assert (
        "pretrain.weighting.rho1 = 19: pretrain.objectives.task.rho2 = 20 71.0, pretrain.objectives.task.rho2 = 100 81.0"
        in picture
    )
    assert "not yet" in str(chart(grid(tmp_path, trials=3)))


def test_the_picture_of_another_search_is_a_line(tmp_path: Path) -> None:
    space = {"pretrain.weighting.rho1": "choice:1,19", "pretrain.objectives.task.rho2": "choice:20.0,100.0"}
    picture = str(chart(grid(tmp_path, strategy="optuna", space=space)))
    assert picture.count("<polyline") == 2
    assert "best so far from 51.0 to 81.0" in picture
    assert "no values" in str(chart(grid(tmp_path, trials=0, strategy="optuna", space=space)))


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_search(grid(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [
        "trial",
        "pretrain.weighting.rho1",
        "pretrain.objectives.task.rho2",
        "dev",
        "time",
        "tokens",
        "FLOPs",
    ]
    assert lines[3].split() == ["1", "1", "20", "51.0", "±", "1.4", "1", "min", "0", "s", "5,000", "1.0e12"]
    print_search(
        SearchResult(
            tmp_path,
            grid(tmp_path).spec,
            (SearchTrial(0, {"pretrain.weighting.rho1": 1, "pretrain.objectives.task.rho2": [1, 2]}),),
        )
    )
    assert "[1, 2]" in capsys.readouterr().out  # no markup of a terminal's


def test_values_in_words() -> None:
    assert in_words({"a": 1 / 3, "b": "inf", "c": None}) == "a = 0.333, b = inf, c = None"
