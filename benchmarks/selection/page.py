"""The page of the selection benchmark: headline statistics and table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.job import finished, ratio
from benchmarks.results_file import Results, fact_lines
from benchmarks.selection.cases import (
    AGREEMENT,
    ENDTASK,
    ENDTASK_SHORT,
    KRONFLUENCE,
    MATMUL,
    PAPER_CANDIDATES,
    PER_EXAMPLE,
    REFERENCE,
    Row,
)

GOALS = (
    "candidates_per_second_110m",
    "speedup_vs_reference",
    "speedup_vs_reference_best_batch",
    "speedup_vs_torch_func",
    "bytes_per_target",
)
"""The statistics of a complete results file."""


def summarize(rows: list[Row]) -> Row:
    """Return the headline statistics, without those of failed or missing measurements."""
    exact = {"engine": ENDTASK, "network": "lean", "pooling": "cls"}
    endtask = best(rows, **exact)
    statistics = {
        "candidates_per_second_110m": endtask,
        "candidates_per_second_110m_not_compiled": best(rows, compiled=False, **exact),
        "candidates_per_second_110m_bert": best(rows, engine=ENDTASK, network="bert"),
        "candidates_per_second_110m_task_text": best(rows, engine=ENDTASK_SHORT),
        **_against_peers(rows, endtask),
        "bytes_per_target": _fewest_bytes(rows, **exact),
        "bytes_per_target_mean_pooling": _fewest_bytes(rows, engine=ENDTASK, pooling="mean"),
        "bytes_per_target_reference": _fewest_bytes(rows, engine=REFERENCE, network="bert"),
        "rank_correlation_with_float32": _first(rows, "rank_correlation", engine=AGREEMENT),
        "lowest_rank_correlation_with_float32": _first(rows, "lowest_rank_correlation", engine=AGREEMENT),
        "best_matmul_tflops": _first(rows, "best_tflops", engine=MATMUL),
        "measurements": sum("error" not in row for row in rows),
    }
    return {name: value for name, value in statistics.items() if value is not None}


def _against_peers(rows: list[Row], endtask: float | None) -> dict[str, float | None]:
    """Return speedups; the authors use BERT in float32, their best speed is over all batches and precisions."""

    def speedup(**values: object) -> float | None:
        return ratio(endtask, best(rows, **values), 2)

    reference = {"engine": REFERENCE, "network": "bert"}
    reference_lean = {"engine": REFERENCE, "network": "lean"}
    bert, peer = best(rows, engine=ENDTASK, network="bert"), best(rows, engine=KRONFLUENCE)
    return {
        "speedup_vs_reference": speedup(**reference, precision="float32", batch=PAPER_CANDIDATES),
        "speedup_vs_reference_best_batch": speedup(**reference),
        "speedup_vs_reference_best_batch_float32": speedup(**reference, precision="float32"),
        "speedup_vs_reference_lean": speedup(**reference_lean, batch=PAPER_CANDIDATES),
        "speedup_vs_reference_lean_best_batch": speedup(**reference_lean),
        "speedup_vs_torch_func": speedup(engine=PER_EXAMPLE),
        "speedup_vs_kronfluence": speedup(engine=KRONFLUENCE),
        "speedup_on_bert_vs_kronfluence": ratio(bert, peer, 2),
    }


def best(rows: Iterable[Row], **values: object) -> float | None:
    """Return the most candidates per second over the measurements with these values."""
    return max((row["candidates_per_second"] for row in finished(rows, **values)), default=None)


def _fewest_bytes(rows: list[Row], **values: object) -> float | None:
    return min((row["bytes_per_target"] for row in finished(rows, **values)), default=None)


def _first(rows: list[Row], name: str, **values: object) -> float | None:
    return next((row[name] for row in finished(rows, **values)), None)


_Row = dict[str, Any]
_SENTENCES = {
    "speedup_vs_reference": "Against the authors' code as they run it (mini-batches of 4, float32): {:.0f} times.",
    "speedup_vs_reference_best_batch": "Against its best mini-batch and precision: {:.1f} times.",
    "speedup_vs_torch_func": "Against `torch.func`, gradients of single texts too: {:.1f} times.",
    "speedup_vs_kronfluence": "Against kronfluence: {:.1f} times.",
    "bytes_per_target": "Memory for a target whose head reads the first token, exact: {:,.0f} bytes.",
    "bytes_per_target_mean_pooling": "Memory for a target whose head reads the mean, two rows in bfloat16: {:,.0f} bytes.",
    "bytes_per_target_reference": "Memory for a target in the authors' code, mini-batches of 8 targets: {:,.0f} bytes.",
    "rank_correlation_with_float32": "Rank correlation of the scores with those in float32, mean over targets: {:.4f}.",
    "lowest_rank_correlation_with_float32": "The lowest rank correlation of a target: {:.4f}.",
}


def selection_table(results: Results) -> str:
    """Return the table of the best candidates per second of every engine, and the speedups."""
    table = [
        "| | network | a gradient of | precision | candidates at once | candidates per second |",
        "|---|---|---|---|---:|---:|",
        *(_line(row) for row in _best_rows(results)),
    ]
    targets = max(count for row in results.rows if isinstance(count := row.get("targets", 0), int))
    where = f"one {results.machine.gpu or results.machine.cpu}, {results.date}"
    how = f"About 110 M parameters, candidates of 128 tokens, {targets:,} targets, `last`, all in one run on {where}"
    return "\n".join([*table, "", f"{how}; `{results.command}`.", "", *fact_lines(results, _SENTENCES), ""])


def _best_rows(results: Results) -> list[_Row]:
    """Return the best row of each engine with each network and precision, and the authors' smallest batch."""
    rows: list[_Row] = [row for row in results.rows if "candidates_per_second" in row]
    smallest = min((row["batch"] for row in rows if row["engine"] == REFERENCE), default=0)
    best: dict[tuple[Any, ...], _Row] = {}
    for row in rows:
        is_smallest = row["engine"] == REFERENCE and row["batch"] == smallest
        key = (row["engine"], row["network"], row["compiled"], row["pooling"], row["precision"], is_smallest)
        if key not in best or row["candidates_per_second"] > best[key]["candidates_per_second"]:
            best[key] = row
    return list(best.values())


def _line(row: _Row) -> str:
    names = {
        ENDTASK: "endtask, compiled" if row["compiled"] else "endtask",
        ENDTASK_SHORT: f"endtask, compiled, task text ({row.get('mean_tokens', 0):.0f} tokens)",
        REFERENCE: "the ISS authors' code",
        PER_EXAMPLE: "`torch.func`",
        KRONFLUENCE: "kronfluence",
    }
    unit = "mini-batch" if row["engine"] == REFERENCE else "text"
    head = ", mean" if row["pooling"] == "mean" else ""
    cells = [names[row["engine"]], f"{row['network']}{head}", unit, row["precision"], str(row["batch"])]
    return f"| {' | '.join(cells)} | {row['candidates_per_second']:,.0f} |"
