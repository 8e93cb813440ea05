"""The table of objectives, and the picture of their weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.reporting.curves import objective_rows, pretrain_charts, pretrain_rows
from endtask.reporting.page import write_report
from endtask.reporting.run_folder import RunFolder

MakeRun = Callable[..., Path]
USES = [
    {"part": "task", "learns": "the task", "reads": "the task's texts", "split": "train", "labels": True},
    {"part": "tapt", "learns": "masked LM", "reads": "the task's texts", "split": "train", "labels": False},
    {"part": "best step", "learns": "when to stop", "reads": "the task's texts", "split": "dev", "labels": True},
]


def with_counts(folder: Path, **counts: Any) -> RunFolder:
    path = folder / "pretrain" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["counts"] |= counts
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return RunFolder(folder)


def write_rows(path: Path, rows: list[dict[str, float]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def weighed(make_run: MakeRun) -> Path:
    """A run whose pre-training learned two weights."""
    folder = make_run()
    rows = [
        {"step": step, "task/task": 1.0, "tapt/mlm": 5.0, "weight/task": 0.5 + step / 100, "weight/tapt": 0.5}
        | {"cosine/task": 0.1, "cosine/tapt": 0.0}
        for step in range(1, 11)
    ]
    write_rows(folder / "pretrain" / "metrics.jsonl", [*rows, {"step": 10, "dev/accuracy": 0.7}])
    objectives = {name: {"steps": 10, "tokens": 1200, "matmul_flops": 3e9} for name in ("task", "tapt")}
    with_counts(folder, objectives=objectives, uses=USES)
    return folder


def test_a_row_for_every_part_of_training(weighed: Path) -> None:
    rows = {row["part"]: row for row in objective_rows(RunFolder(weighed))}
    assert list(rows) == ["task", "tapt", "best step"]
    assert [rows["task"][key] for key in ("steps", "tokens", "matmul_flops")] == [10, 1200, 3e9]
    assert (rows["task"]["weight"], rows["tapt"]["weight"]) == (0.6, 0.5)
    assert (rows["best step"]["steps"], rows["best step"]["weight"]) == (None, None)
    page = write_report(weighed).read_text(encoding="utf-8")
    assert "The data of each part of training" in page
    assert '<th scope="row">tapt</th><td>masked LM</td>' in page


def test_weights_agreement_and_dev_have_a_picture_each(weighed: Path) -> None:
    charts = [str(chart) for chart in pretrain_charts(RunFolder(weighed))]
    titles = [chart.partition("<title>")[2].partition("</title>")[0] for chart in charts]
    assert titles == [
        "Pre-training: masked-LM loss, tapt",
        "Pre-training: task loss, task texts",
        "Pre-training: weights of the objectives",
        "Pre-training: agreement with held-out task data",
        "Pre-training: accuracy on dev",
    ]
    assert "tapt from 0.5 to 0.5; task texts from 0.51 to 0.6" in charts[2]


def test_older_runs_have_no_table(make_run: MakeRun) -> None:
    folder = make_run()
    assert objective_rows(RunFolder(folder)) == []
    assert "The data of each part of training" not in write_report(folder).read_text(encoding="utf-8")


def test_the_curves_of_a_sequence_follow_each_other(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "pretrain" / "metrics.jsonl").unlink()
    for name, steps in (("dapt", 6), ("tapt", 2)):
        rows = [{"step": step, f"{name}/mlm": 1.0} for step in range(1, steps + 1)]
        write_rows(folder / "pretrain" / name / "metrics.jsonl", rows)
    counts = {name: {"steps": steps} for name, steps in (("dapt", 6), ("tapt", 2))}
    run = with_counts(folder, objectives=counts)
    assert [row["step"] for row in pretrain_rows(run)] == list(range(1, 9))
    assert len(pretrain_charts(run)) == 1
