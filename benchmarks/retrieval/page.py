"""The results of the retrieval benchmark as a table, and cost against corpus size as a picture."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.plots import Series, line_chart, picture

COMPARED = ("endtask", "bm25s-numba", "bm25s-numpy", "tantivy")
COLUMNS = {
    "chemprot": "ChemProt",
    "sciie": "SciERC",
    "agnews first 4000": "AGNews, 4,000 queries",
    "generated": "generated corpus",
}
FIGURES = {"seconds": ("seconds", 1.0), "peak_memory_bytes": ("peak memory, GB", 1e9)}


_SENTENCES = (
    "Against the faster backend of bm25s: {speedup_vs_bm25s_full:.1f} times as fast in SHARE of its memory; against tantivy "
    "{speedup_vs_tantivy_full:.1f} times as fast (the least of the three tasks each).",
    "A generated corpus of 5 GB, 4,000 queries, K = 1,000: {seconds_5gb_corpus:.0f} s, {peak_gb_5gb_corpus:.2f} GB of memory, "
    "{scratch_gb_5gb_corpus:.2f} GB of scratch files; K = 10,000: {seconds_5gb_corpus_k_10000:.0f} s and "
    "{peak_gb_5gb_corpus_k_10000:.2f} GB. Each further GB takes {slope_seconds_per_gb:.0f} s.",
    "First run after installing, kernels compiled on the way: {first_run_seconds_full_endtask:.0f} s (bm25s with Numba: "
    "{first_run_seconds_full_bm25s:.0f} s).",
    "On a 3 MB cut with 50 queries: {speedup_vs_rank_bm25_3mb:.0f} times as fast as rank-bm25 (plain Python).",
    "Largest relative difference of a score from bm25s: {largest_score_difference_vs_bm25s:.1e}.",
)


def retrieval_picture(results: Results) -> str:
    """A row of charts per set of queries: time and memory."""
    charts = [
        line_chart(
            [Series(engine, points) for engine in COMPARED if (points := _points(results, task, engine, figure))],
            title=f"{name}: {label}",
            x_label="size of the corpus",
            y_label=label,
            x_format=_megabytes,
            y_format=lambda value: f"{value:g}",
            log=True,
        )
        for task, name in COLUMNS.items()
        for figure, (label, _) in FIGURES.items()
    ]
    title = "Bulk BM25: time and peak memory against the size of the corpus, both axes logarithmic"
    return picture(title, charts, columns=len(FIGURES))


def retrieval_table(results: Results) -> str:
    """Seconds and peak memory of every engine over the full corpus."""
    names = {task: name for task, name in COLUMNS.items() if task != "generated"}
    table = [f"| seconds, peak memory | {' | '.join(names.values())} |", f"|---|{'---:|' * len(names)}"]
    table += [f"| {engine} | {' | '.join(_cost(results, engine, task) for task in names)} |" for engine in COMPARED]
    where = f"{results.machine.cores} cores ({results.machine.cpu}), {results.date}"
    how = "Each run in its own process, K = 1,000; median of 3 for endtask and bm25s-numba, one run for the others"
    found: dict[str, Any] = results.summary
    facts = (f"- {sentence.format(**found)}" for sentence in _SENTENCES)
    share = f"in {100 * found['memory_ratio_vs_bm25s_full']:.0f}% of its memory"
    lines = [line.replace("in SHARE of its memory", share) for line in facts]
    return "\n".join([*table, "", f"{how}. Measured by `{results.command}` on {where}.", "", *lines, ""])


def _cost(results: Results, engine: str, task: str) -> str:
    wanted = (engine, task, "full", False)
    rows: list[dict[str, Any]] = [
        row
        for row in results.rows
        if (row["engine"], row["task"], row["size"], row["cold"]) == wanted and "seconds" in row
    ]
    seconds, memory = (median(row[name] for row in rows) for name in ("seconds", "peak_memory_bytes"))
    return f"{seconds:.0f} s, {memory / 1e9:.1f} GB"


def _points(results: Results, task: str, engine: str, figure: str) -> tuple[tuple[float, float], ...]:
    """Medians over repeats, by megabytes of text."""
    rows: list[dict[str, Any]] = [
        row
        for row in results.rows
        if row.get("task") == task
        and row["engine"] == engine
        and figure in row
        and not row["cold"]
        and row["top_k"] == 1_000
    ]
    sizes = sorted({row["text_bytes"] for row in rows})
    unit = FIGURES[figure][1]
    return tuple(
        (size / 1e6, median(row[figure] for row in rows if row["text_bytes"] == size) / unit) for size in sizes
    )


def _megabytes(size: float) -> str:
    return f"{size / 1e3:g} GB" if size >= 1e3 else f"{size:g} MB"
