"""The curves of a phase."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from endtask.errors import InputError
from endtask.train.loop import StepRecord
from endtask.train.metrics_file import MetricsFile, read_metrics


def record(step: int, **losses: float) -> StepRecord:
    return StepRecord(step, step / 10, {name: torch.tensor(value) for name, value in losses.items()}, 5, 8)


def test_a_row_is_the_mean_since_the_last_one(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=2)
    answers = [
        file.add(record(1, a=1.0), flush=False),
        file.add(record(2, a=2.0, b=5.0), flush=False),
        file.add(record(3, b=7.0), flush=True),
        file.add(record(4, a=9.0), flush=False),
    ]
    rows = [
        {"step": 2, "learning_rate": 0.2, "a": 1.5, "b": 5.0},
        {"step": 3, "learning_rate": 0.3, "b": 7.0},
        {"step": 4, "learning_rate": 0.4, "a": 9.0},
    ]
    assert answers == [None, *rows]
    assert read_metrics(tmp_path / "m.jsonl") == rows


def test_rows_of_another_kind_stand_between(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=1)
    file.add(record(1, a=1.0), flush=False)
    file.write({"step": 1, "dev/accuracy": 0.5})
    assert read_metrics(tmp_path / "m.jsonl")[1] == {"step": 1, "dev/accuracy": 0.5}


def test_a_resumed_phase_drops_what_it_will_write_again(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "m.jsonl", start=0, every=1)
    for step in range(1, 6):
        first.add(record(step, a=1.0), flush=False)
    again = MetricsFile(tmp_path / "m.jsonl", start=3, every=1)
    again.add(record(4, a=8.0), flush=False)
    assert [(row["step"], row["a"]) for row in read_metrics(tmp_path / "m.jsonl")] == [(1, 1), (2, 1), (3, 1), (4, 8)]


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "a": 2.0}\n{"step": 2, "a"')
    assert read_metrics(path) == [{"step": 1, "a": 2.0}]
    MetricsFile(path, start=5, every=1)
    assert path.read_text() == '{"step": 1, "a": 2.0}\n'


def test_no_file_is_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "absent.jsonl") == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_phase(tmp_path: Path, value: float) -> None:
    file = MetricsFile(tmp_path / "m.jsonl", start=0, every=3)
    file.add(record(1, a=value), flush=False)
    file.add(record(2, a=1.0), flush=False)
    with pytest.raises(InputError, match=r"the loss a is not finite near step 3 \(lower the learning_rate"):
        file.add(record(3, a=1.0), flush=False)
    assert read_metrics(tmp_path / "m.jsonl") == []
