"""The benchmark of retrieval: plan, journal, measurements, statistics and page."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as xml
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import zstandard

from benchmarks.results_file import Results, this_machine
from benchmarks.retrieval.engines import ENGINES
from benchmarks.retrieval.inputs import cut_corpus, task_queries, whole_corpus
from benchmarks.retrieval.measure import EngineFailed, Runner
from benchmarks.retrieval.monitor import disk_bytes, monitor
from benchmarks.retrieval.page import COMPARED, compare, retrieval_picture, summarize
from benchmarks.retrieval.plan import (
    GENERATED_SIZES,
    Journal,
    Measurement,
    Row,
    all_sizes,
    all_tasks,
    plan,
    whole_plan,
)
from endtask.io.tables import read_rows

FIRST = Measurement("bm25s-numpy", "full", "sciie", 1_000, cold=False, repeat=1)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def made_up_rows() -> list[Row]:
    """A row for each planned measurement: ours takes a tenth of the time and a fifth of the memory of its peers."""
    sizes = {"3MB": 3_000_000, "50MB": 50_000_000, "150MB": 150_000_000, "full": 440_000_000, **GENERATED_SIZES}
    rows = []
    for measurement in whole_plan():
        size = sizes[measurement.size]
        slow = {"endtask": 1, "bm25s-numba": 10, "bm25s-numpy": 15, "tantivy": 12, "rank-bm25": 100}[measurement.engine]
        seconds = slow * size / 1e8 * (2 if measurement.task.startswith("agnews") else 1) + measurement.repeat / 100
        memory = 10**9 if measurement.engine == "endtask" else 5 * 10**9
        statistics = {"seconds": seconds, "peak_memory_bytes": memory, "peak_scratch_bytes": size // 4}
        rows.append({**asdict(measurement), **statistics, "text_bytes": size})
    return rows


def write_rows(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder in the form of the sample data: two files of passages, one task."""
    folder = tmp_path / "data"
    for name in ("news", "books"):
        passages = [f"{name} passage number {number} about word{number % 7}" for number in range(200)]
        write_rows(folder / "corpus" / f"{name}.jsonl.zst", passages)
    texts = ["what about [[ word3 ]]", "what about word3 !", "passage of << books >>", "..."]
    write_rows(folder / "tasks" / "sciie" / "train.jsonl.zst", texts)
    return folder


def test_all_engines_meet_the_machine_before_any_repeats() -> None:
    whole = whole_plan()
    assert [measurement.repeat for measurement in whole] == sorted(measurement.repeat for measurement in whole)
    assert len(set(whole)) == len(whole)
    assert {measurement.engine for measurement in whole} == set(ENGINES)


def test_a_choice_leaves_out_all_else() -> None:
    chosen = plan(["bm25s-numba"], ["50MB", "full"], ["sciie"], repeats=2)
    assert [(each.size, each.task, each.cold, each.repeat) for each in chosen] == [
        ("full", "sciie", False, 1),
        ("50MB", "sciie", False, 1),
        ("full", "sciie", True, 1),
        ("full", "sciie", False, 2),
    ]
    assert plan(ENGINES, all_sizes(), all_tasks(), repeats=3) == whole_plan()


def test_what_is_measured_is_remembered_until_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    other = replace(FIRST, engine="tantivy", cold=True)
    Journal(path).add(FIRST, {"seconds": 1.5})
    Journal(path).add(other, {"seconds": 2.5})
    assert {key: row["seconds"] for key, row in Journal(path).rows().items()} == {FIRST: 1.5, other: 2.5}
    Journal(path).forget(["tantivy"])
    assert list(Journal(path).rows()) == [FIRST]


def test_a_cut_is_the_same_share_of_every_file_and_part_of_a_larger_cut(data: Path, tmp_path: Path) -> None:
    whole = whole_corpus(data / "corpus", tmp_path)
    half = cut_corpus(data / "corpus", tmp_path, whole.text_bytes // 2)
    quarter = cut_corpus(data / "corpus", tmp_path, whole.text_bytes // 4)
    assert (whole.passages, len(half.paths)) == (400, 2)
    assert 0.48 * whole.text_bytes < half.text_bytes <= 0.5 * whole.text_bytes
    assert 190 <= half.passages <= 205
    for large, small in zip(half.paths, quarter.paths, strict=True):
        rows = [[row["text"] for _, row in read_rows(path)] for path in (large, small)]
        assert rows[0][: len(rows[1])] == rows[1]
        assert len(rows[1]) > 40


def test_queries_are_merged_by_their_words(data: Path) -> None:
    assert task_queries(data / "tasks" / "sciie" / "train.jsonl.zst") == ["what about word3 !", "passage of books"]


@linux_only
def test_a_measurement_runs_the_engine_and_keeps_its_rankings(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("bm25s", minversion="0.3.16", reason="the benchmark sets what older releases do not know")
    runner = Runner(data, tmp_path / "scratch")
    statistics = runner.measure(FIRST)
    assert (statistics["queries"], statistics["passages"]) == (2, 400)
    assert 0 < statistics["seconds"] <= statistics["process_seconds"]
    assert statistics["peak_memory_bytes"] > 20_000_000
    with np.load(runner.rankings(FIRST)) as kept:
        assert kept["scores_0"].shape == (400,)
        assert kept["scores_0"][0] > kept["scores_0"][-1]
    assert not (tmp_path / "scratch" / "engine").exists()


@linux_only
def test_an_engine_that_fails_is_told_of(data: Path, tmp_path: Path) -> None:
    (data / "corpus" / "news.jsonl.zst").write_bytes(b"not compressed")
    runner = Runner(data, tmp_path / "scratch")
    runner.scratch.mkdir()
    (runner.scratch / "full.json").write_text('{"passages": 1, "text_bytes": 1}')
    with pytest.raises(EngineFailed, match="exit status 1"):
        runner.measure(FIRST)


@linux_only
def test_memory_of_a_process_and_its_children_is_added_up(tmp_path: Path) -> None:
    held = "held = bytearray(b'x') * 60_000_000"
    child = f"import time; {held}; time.sleep(0.6)"
    parent = f"import subprocess, sys; {held}; subprocess.run([sys.executable, '-c', {child!r}])"
    usage = monitor([sys.executable, "-c", parent], tmp_path)
    assert usage.code == 0
    assert 120_000_000 < usage.peak_bytes < 180_000_000


@linux_only
def test_disk_is_watched_while_files_come_and_go(tmp_path: Path) -> None:
    code = "import os, time; open('f', 'wb').write(bytes(3_000_000)); time.sleep(1.2); os.unlink('f'); os._exit(3)"
    usage = monitor(["sh", "-c", f'cd {tmp_path} && exec {sys.executable} -c "{code}"'], tmp_path)
    assert usage.code == 3
    assert 2_900_000 < usage.peak_disk_bytes < 3_300_000
    assert disk_bytes(tmp_path) == 0


def keep(path: Path, *rankings: tuple[list[int], list[float]]) -> Path:
    arrays = {}
    for number, (positions, scores) in enumerate(rankings):
        arrays[f"positions_{number}"] = np.asarray(positions, dtype=np.int64)
        arrays[f"scores_{number}"] = np.asarray(scores, dtype=np.float64)
    np.savez(path, **arrays)
    return path


def test_rankings_that_differ_in_ties_and_empty_places_agree(tmp_path: Path) -> None:
    first = keep(tmp_path / "a.npz", ([4, 2, 7], [3.0, 2.0, 1.0]), ([1], [0.5]), ([], []))
    second = keep(tmp_path / "b.npz", ([4, 2, 9], [3.0, 2.0, 1.0]), ([1, 0, 2], [0.5, 0.0, 0.0]), ([5], [0.0]))
    compared = compare(first, second)
    assert compared == {
        "compared_queries": 3,
        "compared_scores": 4,
        "largest_relative_difference": 0.0,
        "passages_in_one_only": 0,
    }


def test_other_scores_and_other_passages_are_counted(tmp_path: Path) -> None:
    first = keep(tmp_path / "a.npz", ([4, 2, 7], [3.3, 2.0, 1.0]))
    second = keep(tmp_path / "b.npz", ([4, 8, 7], [3.0, 2.0, 1.0]))
    compared = compare(first, second)
    assert compared["largest_relative_difference"] == pytest.approx(0.1)
    assert compared["passages_in_one_only"] == 2


def test_the_summary_takes_the_worst_task_and_the_better_backend() -> None:
    rows = made_up_rows()
    summary = summarize(rows, [{"largest_relative_difference": 1e-7, "passages_in_one_only": 0}])
    ours, peer = 4.4 + 0.02, 44 + 0.02
    assert summary["speedup_vs_bm25s_full_by_task"]["sciie"] == pytest.approx(peer / ours, abs=0.001)
    assert summary["speedup_vs_bm25s_full"] == min(summary["speedup_vs_bm25s_full_by_task"].values())
    assert summary["speedup_vs_tantivy_full"] > summary["speedup_vs_bm25s_full"]
    assert summary["memory_ratio_vs_bm25s_full"] == 0.2
    assert (summary["peak_gb_5gb_corpus"], summary["scratch_gb_5gb_corpus"]) == (1.0, 1.25)
    assert summary["slope_seconds_per_gb"] == pytest.approx(10, abs=0.01)
    assert summary["slope_largest_deviation"] < 0.01


def test_a_missing_measurement_is_no_figure() -> None:
    rows = [row for row in made_up_rows() if row["engine"] != "tantivy"]
    with pytest.raises(ValueError, match="no median"):
        summarize(rows, [{"largest_relative_difference": 1e-7, "passages_in_one_only": 0}])


def test_the_picture_shows_every_engine() -> None:
    rows = made_up_rows()
    compared = {**asdict(FIRST), "largest_relative_difference": 1e-7}
    results = Results(
        command="command",
        machine=this_machine(),
        versions={"python": "3"},
        date=date(2025, 1, 2),
        rows=[*rows, compared],
        summary={"figure": 1},
    )
    drawn = retrieval_picture(results)
    assert drawn == retrieval_picture(results)
    picture = xml.fromstring(drawn)
    drawn_lines = [line[0].text for line in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    assert {drawn_lines.count(engine) for engine in COMPARED if engine != "endtask"} == {6}
    assert drawn_lines.count("endtask") == 8
    assert "nan" not in drawn
    for line in picture.iter("{http://www.w3.org/2000/svg}polyline"):
        heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        assert heights == sorted(heights, reverse=True)
        assert len(heights) == 3
