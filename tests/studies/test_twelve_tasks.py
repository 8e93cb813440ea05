"""The summary and the page of the twelve tasks: runs of two studies are tested together."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results_file import read_results
from studies import estimates
from studies.collect import collect
from studies.pages.twelve_tasks import twelve_tasks_section
from studies.stored_results import store
from tests.studies.test_collect import results_file

TRUTH = [0, 1] * 40
NEARLY = [1 - answer if index % 10 == 0 else answer for index, answer in enumerate(TRUTH)]
POOR = [1 - answer if index % 3 == 0 else answer for index, answer in enumerate(TRUTH)]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of one task: 90% right with a selection, 66% without a corpus."""
    monkeypatch.setattr(estimates, "RESULTS", tmp_path)
    monkeypatch.setattr(estimates, "read_results", lambda name: read_results(name, tmp_path))
    without_corpus = {("mini", 0): POOR, ("small", 0): POOR, ("tfidf", 0): TRUTH}
    store([results_file(tmp_path / "other" / "sciie.json", without_corpus, TRUTH)], tmp_path / "raw" / "tasks_finetune")
    came_back = results_file(tmp_path / "came-back" / "sciie.json", {("long", 0): NEARLY, ("long", 1): TRUTH}, TRUTH)
    collect("tasks", came_back.parent, tmp_path)
    return tmp_path


def test_the_summary_has_the_scores_of_both_studies(results: Path) -> None:
    figures = read_results("tasks", results).summary["sciie"]
    assert isinstance(figures, dict)
    assert figures["test_mean"] == figures["clean_test_mean"] == pytest.approx((0.9 + 1) / 2)
    assert (figures["seeds"], figures["models"], figures["tfidf"]) == (2, 2, 1.0)
    assert figures["warm"] == figures["pretrained_small"] == pytest.approx(sum(map(int.__eq__, POOR, TRUTH)) / 80)
    assert (figures["paper_tlm_small"], figures["comparable"]) == (0.8051, True)


def test_the_page_has_a_line_for_the_task_with_the_papers_score(results: Path) -> None:
    lines = twelve_tasks_section(read_results("tasks", results)).splitlines()
    verdict = next(
        line for line in lines if line.startswith("| random weights with a selection are better than endtask")
    )
    assert verdict.endswith("**holds** |")
    cells = next(line for line in lines if line.startswith("| SciERC")).split(" | ")
    assert cells[2].startswith("95.0")
    assert cells[-1] == "80.5 |"
    assert not any("not comparable" in line for line in lines), "neither of the two tasks with other data was measured"
