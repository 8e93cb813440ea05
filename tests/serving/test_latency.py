"""The latency of a model for a single text: measured, stored and reported."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.serving import latency
from endtask.serving.latency import measure_latency, time_calls, write_latency
from endtask.serving.onnx_model import quiet_export
from tests.conftest import Answer


def test_quantiles_of_single_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.001, 0.0, 0.002, 0.0, 0.003])
    monkeypatch.setattr(latency.time, "perf_counter", lambda: next(clock))
    asked: list[str] = []
    found = time_calls(asked.append, ["a", "b", "c"])
    assert asked == ["a", "b", "c", "a", "b", "c"]  # once to warm up
    assert found == {"p50_ms": 2.0, "p99_ms": 2.98, "mean_ms": 2.0}


@pytest.fixture
def without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "find_spec", lambda name: None if name == "onnxruntime" else object())


@pytest.mark.usefixtures("without_onnx")
def test_report_and_command_line_show_the_latency(own_run: Path, command: Callable[..., Answer]) -> None:
    assert "One text at a time" not in (own_run / "report.html").read_text(encoding="utf-8")
    printed = command("report", own_run, "--latency").out
    statistics = json.loads((own_run / "latency.json").read_text(encoding="utf-8"))
    assert f"one text on the CPU: median {statistics['torch']['p50_ms']:.1f} ms" in printed
    assert "onnxruntime not installed" in printed
    assert statistics["texts"] == 18
    assert 0 < statistics["torch"]["p50_ms"] <= statistics["torch"]["p99_ms"]
    page = (own_run / "report.html").read_text(encoding="utf-8")
    assert f"{statistics['torch']['p50_ms']:.1f} ms" in page
    assert "18 texts of dev" in page
    assert json.loads(command("report", own_run, "--json").out)["latency"] == statistics


def test_log_lines_of_the_exporter_stay_away_and_others_come_back(caplog: pytest.LogCaptureFixture) -> None:
    with quiet_export():
        logging.getLogger("torch.onnx").warning("torchvision is not installed")
    logging.getLogger("torch.onnx").warning("afterwards")
    assert caplog.messages == ["afterwards"]


@pytest.mark.long
@pytest.mark.slow
def test_onnx_runtime_is_measured_too(finished_run: Path) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    assert measure_latency(finished_run, ["soup", "a star and the moon"])["onnx"]["p50_ms"] > 0


@pytest.mark.usefixtures("without_onnx")
def test_pairs_are_measured_as_pairs(finished_pair_run: Path, tmp_path: Path) -> None:
    from shutil import copytree

    assert write_latency(Path(copytree(finished_pair_run, tmp_path / "run")))["torch"]["p50_ms"] > 0


def test_a_run_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trained model here"):
        write_latency(tmp_path)
