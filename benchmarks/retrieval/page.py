"""The page of the retrieval benchmark: headline statistics, agreement of engines, table and picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results_file import Results
from benchmarks.retrieval.plan import GENERATED_SIZES, GENERATED_TASK, LARGE_TOP_K, SMALL_TASK, TASKS, TOP_K, Row
from endtask.reporting.plots import Series, line_chart
from endtask.reporting.svg import picture

TOLERANCE = 1e-5
"""Engines may select different passages whose scores differ less from the last score (relative)."""


def compare(first: Path, second: Path) -> Row:
    """Compare two samples of rankings of the same queries over the same passages."""
    with np.load(first) as one, np.load(second) as other:
        numbers = [name.removeprefix("scores_") for name in one.files if name.startswith("scores_")]
        pairs = [[_ranking(sample, number) for sample in (one, other)] for number in numbers]
    return {
        "compared_queries": len(pairs),
        "compared_scores": sum(min(len(a[1]), len(b[1])) for a, b in pairs),
        "largest_relative_difference": max(_difference(a[1], b[1]) for a, b in pairs),
        "passages_in_one_only": sum(_count_missing(a, b) + _count_missing(b, a) for a, b in pairs),
    }


Ranking = tuple[NDArray[np.int64], NDArray[np.float64]]


def _ranking(sample: np.lib.npyio.NpzFile, number: str) -> Ranking:
    """Return the passages that share a word with the query, and their scores; some engines fill up with others."""
    scores = sample[f"scores_{number}"]
    return sample[f"positions_{number}"][scores > 0], scores[scores > 0]


def _difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    count = min(len(first), len(second))
    if count == 0:
        return 0.0
    return float(np.max(np.abs(first[:count] - second[:count]) / second[:count]))


def _count_missing(ranking: Ranking, other: Ranking) -> int:
    """Count the passages that the other ranking lacks although they score clearly more than its last passage."""
    positions, scores = ranking
    last = other[1].min() if len(other[1]) else 0.0
    clear = scores > last * (1 + TOLERANCE)
    return int(np.sum(clear & ~np.isin(positions, other[0])))


ENDTASK, BM25S = ("endtask",), ("bm25s-numba", "bm25s-numpy")
_LARGEST = "generated 5GB"


def summarize(rows: list[Row], agreements: list[Row]) -> Row:
    """Return the headline statistics."""
    return {**_against_peers(rows), **_large_corpus(rows), **_first_runs(rows), **_agreement(agreements)}


def median_of(rows: Iterable[Row], name: str, **values: object) -> float:
    """Return the median of a column over the repeats of a measurement."""
    values = {"cold": False, "top_k": TOP_K, **values}
    return float(median(row[name] for row in rows if all(row[key] == value for key, value in values.items())))


def _against_peers(rows: list[Row]) -> Row:
    bm25s = _by_task(lambda task: _best(rows, "seconds", BM25S, task) / _best(rows, "seconds", ENDTASK, task))
    tantivy = _by_task(lambda task: _best(rows, "seconds", ("tantivy",), task) / _best(rows, "seconds", ENDTASK, task))
    memory = _by_task(
        lambda task: _best(rows, "peak_memory_bytes", ENDTASK, task) / _best(rows, "peak_memory_bytes", BM25S, task)
    )
    small = {engine: median_of(rows, "seconds", engine=engine, task=SMALL_TASK) for engine in ("endtask", "rank-bm25")}
    return {
        "speedup_vs_bm25s_full": min(bm25s.values()),
        "speedup_vs_bm25s_full_by_task": bm25s,
        "speedup_vs_tantivy_full": min(tantivy.values()),
        "speedup_vs_tantivy_full_by_task": tantivy,
        "memory_ratio_vs_bm25s_full": max(memory.values()),
        "memory_ratio_vs_bm25s_full_by_task": memory,
        "seconds_full_by_task": _by_task(lambda task: _best(rows, "seconds", ENDTASK, task)),
        "speedup_vs_rank_bm25_3mb": round(small["rank-bm25"] / small["endtask"], 2),
    }


def _large_corpus(rows: list[Row]) -> Row:
    """Return the statistics of the generated corpus, with a line through its sizes by least squares."""

    def endtask(name: str, size: str = _LARGEST, top_k: int = TOP_K) -> float:
        return median_of(rows, name, engine="endtask", task=GENERATED_TASK, size=size, top_k=top_k)

    gigabytes = np.array([endtask("text_bytes", size) / 1e9 for size in GENERATED_SIZES])
    seconds = np.array([endtask("seconds", size) for size in GENERATED_SIZES])
    slope, start = np.polyfit(gigabytes, seconds, 1)
    deviation = np.max(np.abs(seconds / (start + slope * gigabytes) - 1))
    return {
        "seconds_5gb_corpus": endtask("seconds"),
        "peak_gb_5gb_corpus": round(endtask("peak_memory_bytes") / 1e9, 3),
        "scratch_gb_5gb_corpus": round(endtask("peak_scratch_bytes") / 1e9, 3),
        "seconds_5gb_corpus_k_10000": endtask("seconds", top_k=LARGE_TOP_K),
        "peak_gb_5gb_corpus_k_10000": round(endtask("peak_memory_bytes", top_k=LARGE_TOP_K) / 1e9, 3),
        "scratch_gb_5gb_corpus_k_10000": round(endtask("peak_scratch_bytes", top_k=LARGE_TOP_K) / 1e9, 3),
        "slope_seconds_per_gb": round(float(slope), 2),
        "slope_start_seconds": round(float(start), 2),
        "slope_largest_deviation": round(float(deviation), 3),
    }


def _first_runs(rows: list[Row]) -> Row:
    return {
        f"first_run_seconds_full_{name}": median_of(rows, "seconds", engine=engine, size="full", cold=True)
        for name, engine in (("endtask", "endtask"), ("bm25s", "bm25s-numba"))
    }


def _agreement(agreements: list[Row]) -> Row:
    return {
        "largest_score_difference_vs_bm25s": max(row["largest_relative_difference"] for row in agreements),
        "passages_in_one_only_vs_bm25s": sum(row["passages_in_one_only"] for row in agreements),
    }


def _best(rows: list[Row], name: str, engines: Iterable[str], task: str) -> float:
    return min(median_of(rows, name, engine=engine, size="full", task=task) for engine in engines)


def _by_task(value: Callable[[str], float]) -> dict[str, float]:
    return {task: round(value(task), 3) for task in TASKS}


COMPARED = ("endtask", "bm25s-numba", "bm25s-numpy", "tantivy")
COLUMNS = {
    "chemprot": "ChemProt",
    "sciie": "SciERC",
    "agnews first 4000": "AGNews, 4,000 queries",
    "generated": "generated corpus",
}
CHARTS = {"seconds": ("seconds", 1.0), "peak_memory_bytes": ("peak memory, GB", 1e9)}
"""By column: the label of the axis, and its unit."""

_SENTENCES = (
    "Against the faster backend of bm25s: {speedup_vs_bm25s_full:.1f} times as fast in SHARE of its memory; against tantivy "
    "{speedup_vs_tantivy_full:.1f} times as fast (the lowest of three tasks each).",
    "A generated corpus of 5 GB, 4,000 queries, K = 1,000: {seconds_5gb_corpus:.0f} s, {peak_gb_5gb_corpus:.2f} GB of memory, "
    "{scratch_gb_5gb_corpus:.2f} GB of scratch files; K = 10,000: {seconds_5gb_corpus_k_10000:.0f} s and "
    "{peak_gb_5gb_corpus_k_10000:.2f} GB. Each additional GB takes {slope_seconds_per_gb:.0f} s.",
    "First run after installation, with compilation of kernels: {first_run_seconds_full_endtask:.0f} s (bm25s with Numba: "
    "{first_run_seconds_full_bm25s:.0f} s).",
    "On a 3 MB cut with 50 queries: {speedup_vs_rank_bm25_3mb:.0f} times as fast as rank-bm25 (plain Python).",
    "Largest relative difference of a score from bm25s: {largest_score_difference_vs_bm25s:.1e}.",
)


def retrieval_picture(results: Results) -> str:
    """Return a picture with a row of charts for each set of queries: time and memory."""
    charts = [
        line_chart(
            [Series(engine, points) for engine in COMPARED if (points := _points(results, task, engine, column))],
            title=f"{name}: {label}",
            x_label="size of the corpus",
            y_label=label,
            x_format=_megabytes,
            y_format=lambda value: f"{value:g}",
            log=True,
        )
        for task, name in COLUMNS.items()
        for column, (label, _) in CHARTS.items()
    ]
    title = "Bulk BM25: time and peak memory against the size of the corpus, both axes logarithmic"
    return picture(title, charts, columns=len(CHARTS))


def retrieval_table(results: Results) -> str:
    """Return the table of seconds and peak memory of every engine over the full corpus, and the statistics as a list."""
    names = {task: name for task, name in COLUMNS.items() if task != "generated"}
    table = [f"| seconds, peak memory | {' | '.join(names.values())} |", f"|---|{'---:|' * len(names)}"]
    table += [f"| {engine} | {' | '.join(_cost(results, engine, task) for task in names)} |" for engine in COMPARED]
    where = f"{results.machine.cores} cores ({results.machine.cpu}), {results.date}"
    how = "Each run in its own process, K = 1,000; median of 3 for endtask and bm25s-numba, one run for the others"
    summary: dict[str, Any] = results.summary
    share = f"in {100 * summary['memory_ratio_vs_bm25s_full']:.0f}% of its memory"
    facts = [f"- {text.format(**summary)}".replace("in SHARE of its memory", share) for text in _SENTENCES]
    return "\n".join([*table, "", f"{how}. Measured by `{results.command}` on {where}.", "", *facts, ""])


def _cost(results: Results, engine: str, task: str) -> str:
    rows: list[dict[str, Any]] = [
        row
        for row in results.rows
        if (row["engine"], row["task"], row["size"], row["cold"]) == (engine, task, "full", False) and "seconds" in row
    ]
    seconds, memory = (median(row[name] for row in rows) for name in ("seconds", "peak_memory_bytes"))
    return f"{seconds:.0f} s, {memory / 1e9:.1f} GB"


def _points(results: Results, task: str, engine: str, column: str) -> tuple[tuple[float, float], ...]:
    """Return medians over repeats by megabytes of text."""
    rows: list[dict[str, Any]] = [
        row
        for row in results.rows
        if row.get("task") == task
        and row["engine"] == engine
        and column in row
        and not row["cold"]
        and row["top_k"] == 1_000
    ]
    sizes = sorted({row["text_bytes"] for row in rows})
    unit = CHARTS[column][1]
    return tuple(
        (size / 1e6, median(row[column] for row in rows if row["text_bytes"] == size) / unit) for size in sizes
    )


def _megabytes(size: float) -> str:
    return f"{size / 1e3:g} GB" if size >= 1e3 else f"{size:g} MB"
