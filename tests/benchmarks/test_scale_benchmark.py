"""The page of the scale benchmark: statistics and tables from rows."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results_file import read_results, write_results
from benchmarks.scale.job import BATCHES, PLAIN, RAY, SIDE_BY_SIDE, TRAINING
from benchmarks.scale.page import limits_table, scale_table, simulated_table, summarize
from endtask.planning.measured import Retrieval
from tests.planning.test_simulator import SMALL, measured


def rows(slower: float = 1.0) -> list[dict[str, Any]]:
    """Rows of a machine whose runs of 8 GB are slower than the others foretell."""
    found: list[dict[str, Any]] = []
    for gigabytes in (1, 2, 4, 8):
        one = measured(SMALL.scaled(gigabytes * 1e9))
        if gigabytes == 8:
            one = replace(one, seconds={name: slower * value for name, value in one.seconds.items()})
        found.append({"kind": PLAIN, "gigabytes": gigabytes, **asdict(one), "total": one.total})
    ray = {**found[1], "kind": RAY, "driver_peak_bytes": 4e8}
    ray["seconds"] = {name: 1.05 * value for name, value in ray["seconds"].items()}
    return [*(row for batch in BATCHES for row in steps(batch)), *found, ray]


def steps(batch: int) -> list[dict[str, Any]]:
    """Rows of training: 80% of twice the speed by two processes, 90% without an exchange."""
    times = ((TRAINING, batch, 1, 2.0), (TRAINING, batch, 2, 1.0 / 0.8), (SIDE_BY_SIDE, batch // 2, 2, 1.0 / 0.9))
    return [
        {"kind": kind, "gigabytes": 0, "batch": texts, "processes": processes, "step_seconds": seconds}
        for kind, texts, processes, seconds in times
    ]


def test_statistics() -> None:
    summary = summarize(rows())
    assert summary["prediction_error_8gb"] == pytest.approx(0, abs=1e-3)
    assert summary["ray_overhead_percent"] == pytest.approx(5, abs=0.1)
    assert summary["two_process_efficiency"] == summary["two_process_efficiency_of_256_texts"] == 0.8
    assert summary["side_by_side_efficiency"] == summary["side_by_side_efficiency_of_256_texts"] == 0.9
    assert summary["driver_peak_gb_20_shards"] == 0.4
    one = measured(SMALL.scaled(8e9))
    assert summary["retrieval_mb_per_core_second"] == pytest.approx(8000 / one.total / 2, rel=1e-3)
    assert summary["hours_160gb_64_cores"] > 0


def test_of_repeated_runs_the_fastest_counts() -> None:
    made = rows()
    ray = made[-1]
    times = ({name: factor * value for name, value in ray["seconds"].items()} for factor in (9, 2))
    others = [{**ray, "seconds": seconds, "total": sum(seconds.values())} for seconds in times]
    made[-1] = {**ray, "total": sum(ray["seconds"].values())}
    assert summarize([*others, *made])["ray_overhead_percent"] == summarize(made)["ray_overhead_percent"]


def test_a_wrong_prediction_is_shown() -> None:
    assert summarize(rows(slower=2.0))["prediction_error_8gb"] == pytest.approx(-0.5, abs=1e-3)


def test_the_tables(tmp_path: Path) -> None:
    made = rows()
    write_results("scale", "python", made, summarize(made), tmp_path)
    results = read_results("scale", tmp_path)
    assert "(+0%)" in scale_table(results)
    assert simulated_table(results).count("| 15 TB |") == 1
    assert limits_table(results).count("1,000,000") == 4
    assert next(Retrieval(**row["size"]) for row in made if row["kind"] == PLAIN) == SMALL
