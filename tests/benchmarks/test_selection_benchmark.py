"""The benchmark of selection: every engine runs on a tiny network, and the page shows the statistics."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard

from benchmarks.job import attempt
from benchmarks.results_file import read_results
from benchmarks.selection import __main__ as command
from benchmarks.selection.cases import (
    AGREEMENT,
    ENDTASK,
    ENDTASK_SHORT,
    KRONFLUENCE,
    MATMUL,
    PAPER_CANDIDATES,
    PER_EXAMPLE,
    REFERENCE,
    Case,
    Row,
    by_process,
    plan,
)
from benchmarks.selection.endtask_engine import rank_correlations
from benchmarks.selection.inputs import Setup, candidate_batches, device_context_of, network_of
from benchmarks.selection.job import run_case
from benchmarks.selection.page import GOALS, selection_table, summarize
from benchmarks.selection.peers import gradients_of, masked_table
from benchmarks.selection.prepare import prepare
from benchmarks.training.inputs import vocabulary_folder
from benchmarks.training.prepare import write_rows
from endtask.gradients.arithmetic import matrices
from endtask.gradients.engine import GradientEngine, masked_lm_losses
from endtask.tokenization.tokenizer import save_tokenizer
from tests.tiny import make_packed, make_texts, make_tokenizer

CASE = Case(ENDTASK, "lean", "float32", 8, "cpu", "tiny")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """Random candidates, and targets made from a task's file."""
    tokenizer = make_tokenizer()
    texts = tmp_path / "texts"
    folder = vocabulary_folder(texts, len(tokenizer))
    save_tokenizer(tokenizer, folder / "tokenizer")
    make_packed(folder / "task", count=40)
    write_rows(np.random.default_rng(0).integers(5, len(tokenizer), (40, 128)), folder / "full")
    lines = [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate(make_texts(20))]
    task = tmp_path / "train.jsonl.zst"
    task.write_bytes(zstandard.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    prepare(task, texts, len(tokenizer))
    return Setup(texts, tmp_path / "scratch", len(tokenizer), 16, 32, seconds=0.01, fitting_steps=2)


def arguments(setup: Setup, results: Path) -> list[str]:
    given = {
        "--device": "cpu",
        "--size": "tiny",
        "--texts": setup.texts,
        "--vocabulary": setup.vocabulary,
        "--scratch": setup.scratch,
        "--results": results,
        "--targets": setup.targets,
        "--candidates": setup.candidates,
        "--case-seconds": setup.seconds,
        "--fitting-steps": setup.fitting_steps,
    }
    return ["selection", *(str(part) for pair in given.items() for part in pair)]


@pytest.mark.long
def test_everything_runs_on_a_tiny_network(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_this_process(module: str, cases: list[Case], setup: Setup, seconds: float) -> list[Row]:
        assert module == "benchmarks.selection.job"
        return [attempt(run_case, case, setup) for case in cases]

    monkeypatch.setattr(command, "measure", in_this_process)
    cases = {(case.engine, case.network): case for case in reversed(plan("cpu", "tiny"))}  # one of each
    monkeypatch.setattr(command, "plan", lambda device, size: list(cases.values())[::-1])
    monkeypatch.setattr(sys, "argv", arguments(setup, tmp_path))
    with pytest.raises(SystemExit) as ended:
        command.main()
    results = read_results("selection", tmp_path)
    failed = {row["engine"]: row["error"] for row in results.rows if "error" in row}
    assert failed in ({}, {KRONFLUENCE: "not installed"})
    assert ended.value.code == 0
    assert set(GOALS) <= set(results.summary)
    page = selection_table(results)
    assert all(name in page for name in ("endtask", "the ISS authors' code", "`torch.func`", "16 targets"))
    assert all(row["candidates_per_second"] > 0 for row in results.rows if row["engine"] in (ENDTASK, REFERENCE))
    assert results.summary["rank_correlation_with_float32"] == 1  # which is its precision on a CPU


def test_bytes_per_target_are_those_of_one_row_or_a_matrix(setup: Setup) -> None:
    exact = attempt(run_case, replace(CASE, network="bert"), setup)
    assert (exact["strategy"], exact["bytes_per_target"]) in (("pairs", 2 * 16 * 4 + 8), ("matrix", 16 * 16 * 4))


def test_the_ways_give_the_same_gradients(setup: Setup) -> None:
    context = device_context_of(CASE)
    network = network_of(CASE, setup, context).eval()
    (batch,) = candidate_batches(setup, network, 4, 1)
    by_func = gradients_of(network, batch, *masked_table(batch))
    ((block, uses),) = GradientEngine(network).gradients(batch, masked_lm_losses).blocks.items()
    ours = matrices(uses, 4, block)
    assert torch.allclose(by_func, ours, rtol=1e-4, atol=1e-7)


def test_candidates_are_full_sequences_with_masks_of_their_own(setup: Setup) -> None:
    network = network_of(CASE, setup, device_context_of(CASE))
    first, second = candidate_batches(setup, network, 8, 2)
    again, _ = candidate_batches(setup, network, 8, 2)
    assert first.even
    assert first.texts == 8
    assert torch.equal(first.input_ids, again.input_ids)
    assert not torch.equal(first.input_ids, second.input_ids)
    assert first.masked_positions is not None
    assert second.masked_positions is not None
    assert len(first.masked_positions) == len(second.masked_positions)  # compiled code sees one shape


def test_the_plan_covers_every_headline_figure() -> None:
    cases = plan("cuda", "110m")
    assert len(set(cases)) == len(cases)
    processes = [sorted({case.engine for case in group}) for group in by_process(cases)]
    assert processes == [
        sorted([MATMUL, ENDTASK, AGREEMENT]),
        [REFERENCE],
        [PER_EXAMPLE],
        [KRONFLUENCE],
        [ENDTASK_SHORT],
    ]
    assert set(GOALS) <= set(summarize([made_up_row(case) for case in cases]))


def made_up_row(case: Case) -> Row:
    """Endtask scores 100 a second, the authors' code its batch size, others 10."""
    more: dict[str, Any] = {
        MATMUL: {"best_tflops": 700.0},
        AGREEMENT: {"rank_correlation": 0.999, "lowest_rank_correlation": 0.99},
    }.get(case.engine, {})
    speed = {ENDTASK: 100.0 + case.compiled, REFERENCE: float(case.batch)}.get(case.engine, 10.0)
    return {**asdict(case), "candidates_per_second": speed, "bytes_per_target": 6152.0, **more}


def test_headline_figures() -> None:
    summary = summarize([made_up_row(case) for case in plan("cuda", "110m")])
    assert summary["candidates_per_second_110m"] == 101
    assert summary["candidates_per_second_110m_not_compiled"] == 100
    assert summary["speedup_vs_reference"] == round(101 / PAPER_CANDIDATES, 2)
    assert summary["speedup_vs_reference_best_batch"] == round(101 / 256, 2)
    assert summary["speedup_vs_torch_func"] == 10.1
    assert summary["bytes_per_target"] == 6152


def test_a_failed_measurement_leaves_its_figures_out(setup: Setup) -> None:
    rows = [made_up_row(case) for case in plan("cuda", "110m") if case.engine != PER_EXAMPLE]
    rows.append({**asdict(replace(CASE, engine=PER_EXAMPLE)), "error": "OutOfMemoryError"})
    assert "speedup_vs_torch_func" not in summarize(rows)


def test_rank_correlation_is_spearmans() -> None:
    from scipy.stats import spearmanr

    one, other = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(0))
    expected = [spearmanr(one[:, target], other[:, target]).statistic for target in range(4)]
    assert rank_correlations(one, other).tolist() == pytest.approx(expected)


def test_without_texts_the_maker_is_named(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", arguments(replace(setup, texts=tmp_path / "nowhere"), tmp_path))
    with pytest.raises(SystemExit):
        command.main()
    assert "benchmarks.training.prepare" in capsys.readouterr().err
