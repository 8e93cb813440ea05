"""The headline figures of the selection benchmark, and its table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.job import finished, ratio
from benchmarks.results_file import Results
from benchmarks.selection.cases import (
    AGREEMENT,
    KRONFLUENCE,
    MATMUL,
    OURS,
    OURS_SHORT,
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
"""The figures that a whole results file has."""


def summarize(rows: list[Row]) -> Row:
    """All headline figures that the rows allow; those of a failed or missing measurement are left out."""
    exact = {"engine": OURS, "network": "lean", "pooling": "cls"}
    ours = best(rows, **exact)
    statistics = {
        "candidates_per_second_110m": ours,
        "candidates_per_second_110m_not_compiled": best(rows, compiled=False, **exact),
        "candidates_per_second_110m_bert": best(rows, engine=OURS, network="bert"),
        "candidates_per_second_110m_task_text": best(rows, engine=OURS_SHORT),
        **_against_peers(rows, ours),
        "bytes_per_target": _fewest_bytes(rows, **exact),
        "bytes_per_target_mean_pooling": _fewest_bytes(rows, engine=OURS, pooling="mean"),
        "bytes_per_target_reference": _fewest_bytes(rows, engine=REFERENCE, network="bert"),
        "rank_correlation_with_float32": _first(rows, "rank_correlation", engine=AGREEMENT),
        "lowest_rank_correlation_with_float32": _first(rows, "lowest_rank_correlation", engine=AGREEMENT),
        "best_matmul_tflops": _first(rows, "best_tflops", engine=MATMUL),
        "measurements": sum("error" not in row for row in rows),
    }
    return {name: figure for name, figure in statistics.items() if figure is not None}


def _against_peers(rows: list[Row], ours: float | None) -> dict[str, float | None]:
    """Ratios; the authors' own network is BERT in float32, their best is taken over batches and precisions."""

    def reference(**chosen: object) -> float | None:
        return best(rows, engine=REFERENCE, **chosen)

    return {
        "speedup_vs_reference": _ratio(ours, reference(network="bert", precision="float32", batch=PAPER_CANDIDATES)),
        "speedup_vs_reference_best_batch": _ratio(ours, reference(network="bert")),
        "speedup_vs_reference_best_batch_float32": _ratio(ours, reference(network="bert", precision="float32")),
        "speedup_vs_reference_lean": _ratio(ours, reference(network="lean", batch=PAPER_CANDIDATES)),
        "speedup_vs_reference_lean_best_batch": _ratio(ours, reference(network="lean")),
        "speedup_vs_torch_func": _ratio(ours, best(rows, engine=PER_EXAMPLE)),
        "speedup_vs_kronfluence": _ratio(ours, best(rows, engine=KRONFLUENCE)),
        "speedup_on_bert_vs_kronfluence": _ratio(
            best(rows, engine=OURS, network="bert"), best(rows, engine=KRONFLUENCE)
        ),
    }


def best(rows: Iterable[Row], **chosen: object) -> float | None:
    """The most candidates a second of the measurements that are as chosen."""
    return max((row["candidates_per_second"] for row in finished(rows, **chosen)), default=None)


def _fewest_bytes(rows: list[Row], **chosen: object) -> float | None:
    return min((row["bytes_per_target"] for row in finished(rows, **chosen)), default=None)


def _first(rows: list[Row], name: str, **chosen: object) -> float | None:
    return next((row[name] for row in finished(rows, **chosen)), None)


_Row = dict[str, Any]
_SENTENCES = {
    "speedup_vs_reference": "Against the authors' way as they run it (mini-batches of 4, float32): {:.0f} times.",
    "speedup_vs_reference_best_batch": "Against its best mini-batch and precision: {:.1f} times.",
    "speedup_vs_torch_func": "Against `torch.func`, gradients of single texts too: {:.1f} times.",
    "speedup_vs_kronfluence": "Against kronfluence: {:.1f} times.",
    "bytes_per_target": "Memory for a target whose head reads the first token, exact: {:,.0f} bytes.",
    "bytes_per_target_mean_pooling": "For one whose head reads the mean, two rows in bfloat16: {:,.0f} bytes.",
    "bytes_per_target_reference": "The authors' way, mini-batches of 8 targets: {:,.0f} bytes.",
    "rank_correlation_with_float32": "Rank correlation of the scores with those in float32, mean over targets: {:.4f}.",
    "lowest_rank_correlation_with_float32": "The lowest of any target: {:.4f}.",
}


def selection_table(results: Results) -> str:
    """Candidates per second of every engine at its best, and the ratios."""
    table = [
        "| | network | what is one gradient | precision | candidates at once | candidates per second |",
        "|---|---|---|---|---:|---:|",
        *(_line(row) for row in _shown(results)),
    ]
    targets = max(shown for row in results.rows if isinstance(shown := row.get("targets", 0), int))
    where = f"one {results.machine.gpu or results.machine.cpu}, {results.date}"
    how = f"About 110 M parameters, candidates of 128 tokens, {targets:,} targets, `last`, all in one run on {where}"
    return "\n".join([*table, "", f"{how}; `{results.command}`.", "", *_facts(results), ""])


def _shown(results: Results) -> list[_Row]:
    """The best of each engine with each network; of the authors' way each precision's smallest and best batch."""
    rows: list[_Row] = [row for row in results.rows if "candidates_per_second" in row]
    smallest = min((row["batch"] for row in rows if row["engine"] == REFERENCE), default=0)
    best: dict[tuple[Any, ...], _Row] = {}
    for row in rows:
        alone = row["engine"] == REFERENCE and row["batch"] == smallest
        key = (row["engine"], row["network"], row["compiled"], row["pooling"], row["precision"], alone)
        if key not in best or row["candidates_per_second"] > best[key]["candidates_per_second"]:
            best[key] = row
    return list(best.values())


def _line(row: _Row) -> str:
    names = {
        OURS: "endtask, compiled" if row["compiled"] else "endtask",
        OURS_SHORT: f"endtask, compiled, task text ({row.get('mean_tokens', 0):.0f} tokens)",
        REFERENCE: "the ISS authors' way",
        PER_EXAMPLE: "`torch.func`",
        KRONFLUENCE: "kronfluence",
    }
    unit = "mini-batch" if row["engine"] == REFERENCE else "text"
    head = ", mean" if row["pooling"] == "mean" else ""
    cells = [names[row["engine"]], f"{row['network']}{head}", unit, row["precision"], str(row["batch"])]
    return f"| {' | '.join(cells)} | {row['candidates_per_second']:,.0f} |"


def _facts(results: Results) -> list[str]:
    return [
        f"- {sentence.format(value)}"
        for name, sentence in _SENTENCES.items()
        if isinstance(value := results.summary.get(name), int | float)
    ]


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ratio(ours, theirs, 2)
