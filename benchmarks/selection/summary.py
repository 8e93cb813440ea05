"""The headline figures and the table, drawn from the rows of all measurements."""

from __future__ import annotations

from collections.abc import Iterable

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
    return max((row["candidates_per_second"] for row in _finished(rows, **chosen)), default=None)


def table(rows: list[Row]) -> str:
    """Every measurement as a line for people."""
    head = f"{'engine':<22}{'network':<9}{'head':<6}{'precision':<10}{'batch':>6}{'compiled':>10}{'candidates/s':>14}"
    return "\n".join([f"{head}{'bytes/target':>14}{'GB':>7}", *map(_line, rows)])


def _line(row: Row) -> str:
    start = (
        f"{row['engine']:<22}{row['network']:<9}{row['pooling']:<6}{row['precision']:<10}{row['batch']:>6}"
        f"{row['compiled']!s:>10}"
    )
    if "error" in row:
        return f"{start}  failed: {row['error']}"
    if "candidates_per_second" not in row:
        kept = ("best_tflops", "rank_correlation", "lowest_rank_correlation", "first_loss", "last_loss")
        return f"{start}  " + ", ".join(f"{name} {row[name]}" for name in kept if name in row)
    memory = f"{row['peak_memory_bytes'] / 1e9:>7.1f}" if "peak_memory_bytes" in row else ""
    waits = "" if row.get("waits") in (None, "none") else f"  waits: {row['waits']}"
    return f"{start}{row['candidates_per_second']:>14,.1f}{row['bytes_per_target']:>14,.0f}{memory}{waits}"


def _fewest_bytes(rows: list[Row], **chosen: object) -> float | None:
    return min((row["bytes_per_target"] for row in _finished(rows, **chosen)), default=None)


def _first(rows: list[Row], name: str, **chosen: object) -> float | None:
    return next((row[name] for row in _finished(rows, **chosen)), None)


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else round(ours / theirs, 2)


def _finished(rows: Iterable[Row], **chosen: object) -> list[Row]:
    return [row for row in rows if "error" not in row and all(row[key] == value for key, value in chosen.items())]
