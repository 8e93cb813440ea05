"""Cost against corpus size for every engine, as an SVG made from the results file; both axes are logarithmic."""

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
