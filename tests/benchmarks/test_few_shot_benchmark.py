"""The benchmark of few-shot learning runs, and its tables show the measurements."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import few_shot as benchmark
from benchmarks.few_shot import (
    Row,
    few_shot_table,
    latency,
    make_run,
    summarize,
    time_few_shot,
    time_whole_network,
    write_task,
)
from benchmarks.results_file import read_results, write_results
from endtask.config import resolve
from endtask.task import Task


def test_heads_are_trained_side_by_side_and_one_by_one(
    finished_pair_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "LABELS", 12)
    row = time_few_shot(finished_pair_run, trials=2, epochs=1)
    assert (row["runs"], row["epochs"]) == (2, 1)
    assert time_whole_network(finished_pair_run, trials=1, epochs=1)["runs"] == 1


def test_runs_and_texts_of_made_up_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(folder=tmp_path / "tags-tiny")
    monkeypatch.setattr("endtask.run", lambda tree: resolve(tree) and run)  # a wrong setting raises
    assert make_run(tmp_path, "tags", "tiny") == run.folder
    monkeypatch.setattr(benchmark, "measure_latency", lambda folder, texts: {"texts": len(texts)})
    assert latency(run.folder, "tags") == {"what": "latency", "texts": benchmark.SPLITS["test"]}


def test_made_up_tasks_are_read_as_what_they_are(tmp_path: Path) -> None:
    pairs, tags = (Task.read(write_task(tmp_path / kind, kind)) for kind in benchmark.KINDS)
    assert (pairs.type, tags.type) == ("pair", "token_classification")
    assert (pairs.labels, tags.labels) == (("n", "y"), ("none", "start"))
    again = write_task(tmp_path / "again", "tags").joinpath("train.jsonl").read_text()
    assert again == (tmp_path / "tags" / "train.jsonl").read_text()


def made_up(what: str, seconds: float, runs: int, kind: str = "pair") -> Row:
    return {"what": what, "kind": kind, "size": "256x3", "runs": runs, "epochs": 50, "seconds": seconds}


def test_headline_figures(tmp_path: Path) -> None:
    rows = [made_up("side by side", seconds, 100) for seconds in (40.0, 30.0, 60.0)]
    rows += [made_up("one by one", 60.0, 3), made_up("side by side", 60.0, 50, "tags")]
    rows.append({"what": "latency", "kind": "pair", "size": "256x3", "torch": {"p50_ms": 2.5, "p99_ms": 4.0}})
    rows[-1]["onnx"] = {"p50_ms": 1.5, "p99_ms": 2.0}
    summary = summarize(rows)
    assert summary == {
        "head_only_runs_per_minute_cpu": 150.0,
        "speedup_vs_one_by_one": 50.0,
        "latency_p50_ms_256x3": 2.5,
        "latency_p99_ms_256x3": 4.0,
        "head_only_runs_per_minute_cpu_tags": 50.0,
    }
    write_results("few_examples", "python", rows, summary, tmp_path)
    page = few_shot_table(read_results("few_examples", tmp_path))
    assert "| 150.0 | 50.0 times |" in page
    assert "| 256x3 | 2.5 ms, 4.0 ms | 1.5 ms, 2.0 ms |" in page
