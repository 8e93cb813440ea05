"""First runs: every format is read back, and the summary is computed from the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.friendly.formats import CORPORA, TASKS, format_rows
from benchmarks.friendly.page import friendly_table, summarize
from benchmarks.results_file import Results, read_results, write_results


@pytest.mark.slow
def test_every_format_is_read(tmp_path: Path) -> None:
    for library in ("datasets", "mwparserfromhell", "openpyxl", "pypdf", "resiliparse", "warcio"):
        pytest.importorskip(library)
    rows = format_rows(tmp_path)
    assert len(rows) == len(TASKS) + len(CORPORA)
    assert [row for row in rows if not row["read"]] == []


def row(task: str, **values: Any) -> dict[str, Any]:
    measured = {
        "train_rows": 900, "metric": "macro_f1", "score": 0.5, "tfidf_score": 0.4, "interval": [0.0, 0.2],
        "p_value": 0.04, "training_seconds": 90.0, "run_seconds": 110.0, "int8_score_loss": 0.01,
    }  # fmt: skip
    return {"measure": "first_run", "task": task, **measured, **values}


def test_the_summary_takes_the_worst_budget_and_the_mean_difference(tmp_path: Path) -> None:
    rows = [
        {"measure": "format", "kind": "task", "format": "csv", "read": True},
        {"measure": "format", "kind": "task", "format": "odd", "read": False},
        row("a", budget_error_percent=3.0, difference=0.10, int8_speedup=2.0),
        row("b", budget_error_percent=-9.0, difference=-0.04, int8_speedup=3.0),
        row("c", budget_error_percent=1.0, difference=0.03, int8_speedup=7.0),
        {"measure": "first_run", "task": "d", "error": "killed"},
    ]
    summary = summarize(rows)
    assert summary["formats_read"] == 1
    assert summary["budget_error_percent_90s"] == -9.0
    assert summary["onnx_speedup_int8"] == 3.0
    assert summary["onnx_score_loss"] == pytest.approx(1.0)
    assert summary["first_run_vs_tfidf_points"] == pytest.approx(3.0)
    write_results("friendly", "a command", rows, summary, tmp_path)
    page = friendly_table(read_results("friendly", tmp_path))
    assert page.count("| macro_f1 50.0 |") == 3
    assert "not task odd" in page


def test_without_runs_the_page_says_so(tmp_path: Path) -> None:
    rows = [{"measure": "format", "kind": "task", "format": "csv", "read": True}]
    write_results("friendly", "a command", rows, summarize(rows), tmp_path)
    results: Results = read_results("friendly", tmp_path)
    assert "not been measured" in friendly_table(results)
