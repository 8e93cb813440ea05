"""The benchmark of training: texts, engines, statistics and page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.job import attempt
from benchmarks.results_file import read_results
from benchmarks.training import cases as cases_module
from benchmarks.training.__main__ import write
from benchmarks.training.cases import (
    COMPILED,
    ENDTASK,
    MATMUL,
    REFERENCE,
    SIZES,
    SMALL_VOCABULARY,
    TRAINER,
    Case,
    Row,
    Size,
    by_engine,
    cpu_plan,
    gpu_plan,
)
from benchmarks.training.inputs import Setup, StepClock, TextRows, shuffled, texts_per_batch, vocabulary_folder
from benchmarks.training.job import run_case
from benchmarks.training.page import GOALS, summarize
from benchmarks.training.prepare import draw_passages, full_rows, joined, task_texts, write_rows
from endtask.encoders.modernbert import gated_width
from endtask.tokenization.packed_texts import PackedTexts, pack_passages
from endtask.tokenization.tokenizer import save_tokenizer
from tests.tiny import make_packed, make_texts, make_tokenizer

CASE = Case(TRAINER, "110m", "full", 256, "cuda", 8)


def write_texts(path: Path, texts: Sequence[str]) -> Path:
    path.write_bytes(zstandard.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode()))
    return path


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    return [
        write_texts(tmp_path / f"{name}.jsonl.zst", [f"{name} {number}" for number in range(200)])
        for name in ("books", "news")
    ]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path / "texts", tmp_path / "scratch", warmup=1, steps=2)


def test_passages_are_a_share_of_every_source_mixed_by_the_seed(sources: list[Path]) -> None:
    drawn = draw_passages(sources, 0.5)
    counts = Counter(text.split()[0] for text in drawn)
    assert len(set(drawn)) == len(drawn)
    assert all(70 <= counts[name] <= 130 for name in ("books", "news"))
    assert len({text.split()[0] for text in drawn[:20]}) == 2
    assert drawn == draw_passages(sources, 0.5) != draw_passages(sources, 0.5, seed=1)
    assert sorted(draw_passages(sources, 1.0)) == sorted(
        f"{name} {n}" for name in ("books", "news") for n in range(200)
    )


def test_task_texts_come_one_by_one(sources: list[Path]) -> None:
    texts = task_texts(sources)
    assert (texts[0], texts[200], len(texts)) == ("books 0", "news 0", 400)


def test_full_rows_are_the_text_cut_into_equal_pieces(tmp_path: Path) -> None:
    tokenizer, texts = make_tokenizer(), make_texts(40)
    rows = full_rows(pack_passages(joined(texts, 20), tokenizer, 16, tmp_path / "passages"), 16)
    written = write_rows(rows, tmp_path / "full")
    ids = tokenizer(" ".join(texts[:20]), add_special_tokens=False)["input_ids"]
    assert written.lengths.tolist() == [16] * len(rows) == written.second.tolist()
    assert set(rows[:, 0]) == {tokenizer.cls_token_id}
    assert set(rows[:, -1]) == {tokenizer.sep_token_id}
    whole = len(ids) // 14
    assert np.concatenate([written[place][1:-1] for place in range(whole)]).tolist() == ids[: 14 * whole]
    assert len(rows) < len(PackedTexts(tmp_path / "passages"))  # the ends were short


@given(count=st.integers(1, 50), wanted=st.integers(1, 200), seed=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_every_text_comes_once_before_any_comes_twice(count: int, wanted: int, seed: int) -> None:
    order = shuffled(count, wanted, seed)
    assert len(order) == wanted
    for start in range(0, wanted, count):
        part = order[start : start + count].tolist()
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(count))


def test_batches_of_short_texts_hold_as_many_tokens_as_full_rows() -> None:
    lengths = np.array([20, 60] * 500)
    assert texts_per_batch(np.full(10, 128), rows=256) == 256
    assert texts_per_batch(lengths, rows=256) * lengths.mean() == pytest.approx(256 * 128, rel=0.01)


def test_a_row_marks_its_special_tokens(tmp_path: Path) -> None:
    packed = make_packed(tmp_path)
    row = TextRows(packed, np.array([3, 1]), batch_size=2)[0]
    assert row["input_ids"] == packed[3].tolist()
    special = {make_tokenizer().cls_token_id, make_tokenizer().sep_token_id}
    assert row["special_tokens_mask"] == [int(token in special) for token in row["input_ids"]]


def test_only_steps_after_the_warm_up_are_timed() -> None:
    clock = StepClock(torch.device("cpu"), warmup=2, steps=3)
    timed = []
    for _ in range(clock.total):
        timed.append(clock.is_timing)
        clock.tick()
    statistics = clock.statistics()
    assert timed == [False, False, True, True, True]
    assert isinstance(statistics["step_milliseconds"], list)
    assert sum(statistics["step_milliseconds"]) == pytest.approx(1000 * float(str(statistics["seconds"])), abs=1.0)


def test_an_unfinished_run_gives_no_figures() -> None:
    clock = StepClock(torch.device("cpu"), warmup=1, steps=2)
    clock.tick()
    with pytest.raises(RuntimeError, match="1 of 3 steps"):
        clock.statistics()


def test_gated_blocks_are_as_wide_as_those_of_the_package() -> None:
    assert {name: size.gated_width for name, size in SIZES.items()} == {
        name: gated_width(size.hidden) for name, size in SIZES.items()
    }


def test_the_plans_cover_every_headline_figure() -> None:
    cases = [*gpu_plan(256), *cpu_plan(32, amx=True)]
    assert len(set(cases)) == len(cases)
    assert set(GOALS) <= set(summarize([made_up_row(case) for case in cases]))


def test_cases_of_one_engine_share_a_process() -> None:
    groups = by_engine(gpu_plan(256))
    assert [group[0].engine for group in groups] == [MATMUL, ENDTASK, TRAINER, COMPILED, REFERENCE]
    assert all(len({case.engine for case in group}) == 1 for group in groups)


def made_up_row(case: Case) -> Row:
    """Figures of an engine: ours is four times as fast as the Trainer, whose workers make it slower."""
    if case.engine == MATMUL:
        return {**asdict(case), "tflops": {"8192x8192x8192": 800.0}, "best_tflops": 800.0}
    slow = {ENDTASK: 1.0, TRAINER: 4.0, COMPILED: 2.0, REFERENCE: 5.0}[case.engine] * (1 + case.workers / 100)
    tokens = 1_000_000
    statistics = {"seconds": slow, "steps": 10, "tokens": tokens, "padded_tokens": 2 * tokens, "loss": 9.5}
    flops = {"flops": 4e14} if case.engine == ENDTASK else {}
    return {**asdict(case), **statistics, **flops, "tokens_per_second": tokens / slow}


def test_headline_figures() -> None:
    rows = [made_up_row(replace(case, workers=0)) for case in gpu_plan(256)]
    rows += [made_up_row(case) for case in cpu_plan(32, amx=True)]
    summary = summarize(rows)
    assert summary["tokens_per_second_110m"] == 1e6
    assert summary["fraction_of_matmul_peak_110m"] == 0.5
    assert summary["speedup_vs_trainer_full"] == summary["speedup_vs_trainer_task_text"] == 4.0
    assert summary["speedup_vs_compiled_trainer_full"] == 2.0
    assert summary["speedup_vs_reference_full"] == 5.0
    assert (summary["cpu_speedup_vs_trainer"], summary["cpu_trainer_workers"]) == (4.0, 0)  # against its faster way
    assert summary["cpu_speedup_vs_trainer_mini"] == summary["cpu_speedup_vs_trainer_mini_task_text"] == 4.0
    assert (summary["cpu_speedup_vs_trainer_mini_bfloat16"], summary["cpu_speedup_of_bfloat16"]) == (4.0, 1.0)


def test_a_repeated_measurement_counts_with_its_median() -> None:
    row = made_up_row(replace(CASE, engine=ENDTASK, workers=0))
    rows = [{**row, "repeat": n, "tokens_per_second": speed} for n, speed in enumerate((5.0, 7.0, 90.0), start=1)]
    assert summarize(rows)["tokens_per_second_110m"] == 7.0


def test_a_failed_measurement_leaves_its_figures_out() -> None:
    rows = [made_up_row(case) for case in gpu_plan(256) if case.engine != COMPILED]
    rows += [{**asdict(replace(CASE, engine=COMPILED)), "error": "not done within 180 s"}]
    summary = summarize(rows)
    assert "speedup_vs_compiled_trainer_full" not in summary
    assert "speedup_vs_trainer_full" in summary


def test_a_cpu_without_amx_has_no_cases_in_bfloat16() -> None:
    rows = [made_up_row(case) for case in cpu_plan(32, amx=False)]
    assert {row["precision"] for row in rows} == {"float32"}
    assert "cpu_speedup_of_bfloat16" not in summarize(rows)


def test_small_vocabularies_do_not_mix_with_the_large_one() -> None:
    rows = [made_up_row(case) for case in cpu_plan(32, amx=True) if case.vocabulary == SMALL_VOCABULARY]
    summary = summarize(rows)
    assert summary["cpu_speedup_vs_trainer_vocabulary_8000"] == 4.0
    assert not {"cpu_speedup_vs_trainer", "cpu_trainer_workers"} & set(summary)


def test_a_part_of_the_results_replaces_only_itself(tmp_path: Path) -> None:
    gpu, cpu = ([made_up_row(case) for case in plan] for plan in (gpu_plan(256), cpu_plan(32, amx=True)))
    write(gpu, "cuda", merge=False, folder=tmp_path)
    path = tmp_path / "training.json"
    head = {**json.loads(path.read_text(encoding="utf-8")), "date": "2001-02-03"}
    path.write_text(json.dumps(head), encoding="utf-8")
    write(cpu[:2], "cpu", merge=True, folder=tmp_path)
    write(cpu, "cpu", merge=True, folder=tmp_path)
    results = read_results("training", tmp_path)
    assert results.rows == [*gpu, *cpu]
    assert set(GOALS) <= set(results.summary)
    assert str(results.date) == "2001-02-03"  # the head tells of the machine with the GPU
    assert results.command == "python -m benchmarks.training && python -m benchmarks.training --device cpu --merge"
    gpu = [made_up_row(case) for case in gpu_plan(1024)]
    write(gpu[:1], "cuda", merge=False, folder=tmp_path)
    assert read_results("training", tmp_path).command == "python -m benchmarks.training --rows 1024"
    assert read_results("training", tmp_path).rows == gpu[:1]


@pytest.mark.parametrize(
    ("engine", "text"), [(ENDTASK, "full"), (ENDTASK, "task"), (TRAINER, "task"), (REFERENCE, "full")]
)
def test_engines_train_and_count_real_tokens(
    engine: str, text: cases_module.Text, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == TRAINER:
        pytest.importorskip("accelerate", reason="the Trainer needs the extra `benchmarks`")
    tokenizer = make_tokenizer()
    case = Case(engine, "128x2", text, 2, "cpu", vocabulary=len(tokenizer))
    folder = vocabulary_folder(setup.texts, case.vocabulary)
    save_tokenizer(tokenizer, folder / "tokenizer")
    random = np.random.default_rng(0)
    if text == "full":
        write_rows(random.integers(5, len(tokenizer), (8, 128)), folder / "full")
    else:
        make_packed(folder / "task", count=150)
    monkeypatch.setitem(SIZES, "128x2", Size(16, 1, 2, 16))
    row = attempt(run_case, case, setup)
    assert "error" not in row
    expected = setup.steps * 2 * 128
    assert row["tokens"] == expected if text == "full" else abs(row["tokens"] - expected) < 0.2 * expected
    assert row["padded_tokens"] >= row["tokens"]
    assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"], rel=0.01)
    assert 0 < row["loss"] < 2 * np.log(len(tokenizer))
