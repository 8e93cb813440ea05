"""The curves of a phase."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from endtask.training.loop import StepRecord
from endtask.training.metrics_file import MetricsFile, read_metrics


def record(step: int, norm: float = 2.0, **losses: float) -> StepRecord:
    tensors = {name: torch.tensor(value) for name, value in losses.items()}
    return StepRecord(step, step / 10, tensors, torch.tensor(norm), tokens=5, padded_tokens=8, flops=1e3)


def add(file: MetricsFile, found: StepRecord) -> None:
    (row,) = file.add(found, flush=True)
    file.write(row)


def test_a_row_is_the_mean_since_the_last_one(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=2)
    answers = [
        file.add(record(1, a=1.0, norm=1.0), flush=False),
        file.add(record(2, a=2.0, b=5.0, norm=4.0), flush=False),
        file.add(record(3, b=7.0), flush=True),
        file.add(record(4, a=9.0), flush=False),
    ]
    assert answers == [
        [],
        [{"step": 2, "learning_rate": 0.2, "a": 1.5, "b": 5.0, "grad_norm": 2.5}],
        [{"step": 3, "learning_rate": 0.3, "b": 7.0, "grad_norm": 2.0}],
        [{"step": 4, "learning_rate": 0.4, "a": 9.0, "grad_norm": 2.0}],
    ]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=1)
    add(file, record(1, a=1.0))
    file.write({"step": 1, "dev/accuracy": 0.5})
    assert read_metrics(tmp_path / "m.jsonl") == [
        {"step": 1, "learning_rate": 0.1, "a": 1.0, "grad_norm": 2.0},
        {"step": 1, "dev/accuracy": 0.5},
    ]


def test_a_resumed_phase_drops_what_it_will_write_again(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "m.jsonl", start=0, every=1)
    for step in range(1, 6):
        add(first, record(step, a=1.0))
    again = MetricsFile(tmp_path / "m.jsonl", start=3, every=1)
    add(again, record(4, a=8.0))
    assert [(row["step"], row["a"]) for row in read_metrics(tmp_path / "m.jsonl")] == [(1, 1), (2, 1), (3, 1), (4, 8)]


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "a": 2.0}\n{"step": 2, "a"')
    assert read_metrics(path) == [{"step": 1, "a": 2.0}]
    MetricsFile(path, start=5, every=1)
    assert path.read_text() == '{"step": 1, "a": 2.0}\n'


def test_no_file_is_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "absent.jsonl") == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_has_no_part_in_a_mean(tmp_path: Path, value: float) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=3)
    file.add(record(1, a=value, b=3.0, norm=value), flush=False)
    file.add(record(2, a=1.0), flush=False)
    (row,) = file.add(record(3, a=2.0), flush=False)
    assert row == {"step": 3, "learning_rate": 0.3, "a": 1.5, "b": 3.0, "grad_norm": 2.0}
    (alone,) = file.add(record(4, a=value, norm=value), flush=True)
    assert alone == {"step": 4, "learning_rate": 0.4}
    json.dumps([row, alone], allow_nan=False)


def test_losses_of_low_precision_are_averaged_in_full(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=2)
    for step, value in ((1, 2.0), (2, 2.015625)):  # both have a bfloat16, their mean has none
        losses = {"a": torch.tensor(value, dtype=torch.bfloat16)}
        rows = file.add(StepRecord(step, 0.1, losses, torch.tensor(1.0), 5, 8, 1.0), flush=False)
    assert [row["a"] for row in rows] == [2.0078125]


def test_counts_are_those_of_the_rows_step(tmp_path: Path) -> None:
    file, count = MetricsFile(tmp_path / "m.jsonl", start=0, every=2), torch.tensor(0)
    rows = []
    for step in range(1, 5):
        count += step
        rows += file.add(record(step, a=1.0), flush=False, counts={"seen": count})
    assert [(row["step"], row["seen"]) for row in rows] == [(2, 3), (4, 10)]


class LateEvent:
    """Stands for a GPU's event: what was asked for arrives at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def record(self) -> None:
        pass

    def query(self) -> bool:
        self.looks += 1
        return self.looks >= 3

    def synchronize(self) -> None:
        pass


def test_rows_of_a_gpu_come_late_in_their_order_and_all_at_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", LateEvent)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=2)
    steps = [[row["step"] for row in file.add(record(step, a=1.0), flush=step == 7)] for step in range(1, 8)]
    assert steps == [[], [], [], [2], [], [4], [6, 7]]
