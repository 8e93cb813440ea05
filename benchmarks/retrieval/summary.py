"""The headline figures, drawn from the rows of all measurements.

A figure over several tasks is the worst of them. bm25s counts with the better of its two backends, for time and for
memory each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

import numpy as np

from benchmarks.retrieval.plan import GENERATED_SIZES, GENERATED_TASK, LARGE_TOP_K, SMALL_TASK, TASKS, TOP_K, Row

BM25S = ("bm25s-numba", "bm25s-numpy")
_LARGEST = "generated 5GB"


def summarize(rows: list[Row], agreements: list[Row]) -> Row:
    """All headline figures."""
    return {**_against_peers(rows), **_large_corpus(rows), **_first_runs(rows), **_agreement(agreements)}


def figure(rows: Iterable[Row], name: str, **chosen: object) -> float:
    """The median of a figure over the repeats of one measurement."""
    wanted = {"cold": False, "top_k": TOP_K, **chosen}
    return float(median(row[name] for row in rows if all(row[key] == value for key, value in wanted.items())))


def _against_peers(rows: list[Row]) -> Row:
    bm25s = _by_task(lambda task: _best(rows, "seconds", BM25S, task) / _ours(rows, "seconds", task))
    tantivy = _by_task(lambda task: _best(rows, "seconds", ("tantivy",), task) / _ours(rows, "seconds", task))
    memory = _by_task(
        lambda task: _ours(rows, "peak_memory_bytes", task) / _best(rows, "peak_memory_bytes", BM25S, task)
    )
    small = {engine: figure(rows, "seconds", engine=engine, task=SMALL_TASK) for engine in ("endtask", "rank-bm25")}
    return {
        "speedup_vs_bm25s_full": min(bm25s.values()),
        "speedup_vs_bm25s_full_by_task": bm25s,
        "speedup_vs_tantivy_full": min(tantivy.values()),
        "speedup_vs_tantivy_full_by_task": tantivy,
        "memory_ratio_vs_bm25s_full": max(memory.values()),
        "memory_ratio_vs_bm25s_full_by_task": memory,
        "seconds_full_by_task": _by_task(lambda task: _ours(rows, "seconds", task)),
        "speedup_vs_rank_bm25_3mb": round(small["rank-bm25"] / small["endtask"], 2),
    }


def _large_corpus(rows: list[Row]) -> Row:
    """The generated corpus; the slope is that of the line nearest to its sizes, by least squares."""

    def ours(name: str, size: str = _LARGEST, top_k: int = TOP_K) -> float:
        return figure(rows, name, engine="endtask", task=GENERATED_TASK, size=size, top_k=top_k)

    gigabytes = np.array([ours("text_bytes", size) / 1e9 for size in GENERATED_SIZES])
    seconds = np.array([ours("seconds", size) for size in GENERATED_SIZES])
    slope, start = np.polyfit(gigabytes, seconds, 1)
    off = np.max(np.abs(seconds / (start + slope * gigabytes) - 1))
    return {
        "seconds_5gb_corpus": ours("seconds"),
        "peak_gb_5gb_corpus": round(ours("peak_memory_bytes") / 1e9, 3),
        "scratch_gb_5gb_corpus": round(ours("peak_scratch_bytes") / 1e9, 3),
        "seconds_5gb_corpus_k_10000": ours("seconds", top_k=LARGE_TOP_K),
        "peak_gb_5gb_corpus_k_10000": round(ours("peak_memory_bytes", top_k=LARGE_TOP_K) / 1e9, 3),
        "scratch_gb_5gb_corpus_k_10000": round(ours("peak_scratch_bytes", top_k=LARGE_TOP_K) / 1e9, 3),
        "slope_seconds_per_gb": round(float(slope), 2),
        "slope_start_seconds": round(float(start), 2),
        "slope_largest_deviation": round(float(off), 3),
    }


def _first_runs(rows: list[Row]) -> Row:
    return {
        f"first_run_seconds_full_{name}": figure(rows, "seconds", engine=engine, size="full", cold=True)
        for name, engine in (("endtask", "endtask"), ("bm25s", "bm25s-numba"))
    }


def _agreement(agreements: list[Row]) -> Row:
    return {
        "largest_score_difference_vs_bm25s": max(row["largest_relative_difference"] for row in agreements),
        "passages_in_one_only_vs_bm25s": sum(row["passages_in_one_only"] for row in agreements),
    }


def _ours(rows: list[Row], name: str, task: str) -> float:
    return figure(rows, name, engine="endtask", size="full", task=task)


def _best(rows: list[Row], name: str, engines: Iterable[str], task: str) -> float:
    return min(figure(rows, name, engine=engine, size="full", task=task) for engine in engines)


def _by_task(value: Callable[[str], float]) -> dict[str, float]:
    return {task: round(value(task), 3) for task in TASKS}
