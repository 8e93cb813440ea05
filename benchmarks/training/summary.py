"""The headline figures and the table, drawn from the rows of all measurements."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.training.cases import COMPILED, MATMUL, OURS, REFERENCE, SMALL_VOCABULARY, TRAINER, VOCABULARY, Row

GOALS = (
    "tokens_per_second_110m",
    "tokens_per_second_42m",
    "tokens_per_second_23m",
    "fraction_of_matmul_peak_110m",
    "speedup_vs_trainer_full",
    "speedup_vs_compiled_trainer_full",
    "speedup_vs_trainer_task_text",
    "speedup_vs_reference_full",
    "cpu_speedup_vs_trainer",
)
"""The figures that a whole results file has."""


def summarize(rows: list[Row]) -> Row:
    """All headline figures that the rows allow; those of a failed or missing measurement are left out."""
    statistics = {**_gpu(rows), **_cpu(rows), "measurements": sum("error" not in row for row in rows)}
    return {name: figure for name, figure in statistics.items() if figure is not None}


def speed(rows: Iterable[Row], **chosen: object) -> float | None:
    """Tokens a second: the median over repeats, with the number of workers that is best; None where not measured."""
    by_workers: dict[int, list[float]] = {}
    for row in _finished(rows, **{"vocabulary": VOCABULARY, **chosen}):
        by_workers.setdefault(row["workers"], []).append(row["tokens_per_second"])
    return max(map(median, by_workers.values()), default=None)


def best_workers(rows: Iterable[Row], **chosen: object) -> int | None:
    """With how many workers an engine was fastest."""
    fastest = max(_finished(rows, **chosen), key=lambda row: row["tokens_per_second"], default=None)
    return None if fastest is None else fastest["workers"]


def table(rows: list[Row]) -> str:
    """Every measurement as a line for people."""
    lines = [
        f"{'engine':<17}{'size':<7}{'text':<6}{'vocab':>6}{'workers':>8}{'tokens/s':>12}{'real':>6}{'ms/step':>9}"
        f"{'loss':>7}{'GB':>6}"
    ]
    for row in rows:
        start = f"{row['engine']:<17}{row['size']:<7}{row['text']:<6}{row['vocabulary']:>6}{row['workers']:>8}"
        lines.append(start + _outcome(row))
    return "\n".join(lines)


def _gpu(rows: list[Row]) -> dict[str, float | None]:
    def tokens(engine: str, size: str = "110m", text: str = "full") -> float | None:
        return speed(rows, device="cuda", engine=engine, size=size, text=text)

    full, task = tokens(OURS), tokens(OURS, text="task")
    return {
        "tokens_per_second_110m": full,
        "tokens_per_second_42m": tokens(OURS, "42m"),
        "tokens_per_second_23m": tokens(OURS, "23m"),
        "tokens_per_second_110m_task_text": task,
        "fraction_of_matmul_peak_110m": _fraction_of_peak(rows),
        "best_matmul_tflops": _best_matmul(rows),
        "speedup_vs_trainer_full": _ratio(full, tokens(TRAINER)),
        "speedup_vs_trainer_full_42m": _ratio(tokens(OURS, "42m"), tokens(TRAINER, "42m")),
        "speedup_vs_trainer_full_23m": _ratio(tokens(OURS, "23m"), tokens(TRAINER, "23m")),
        "speedup_vs_compiled_trainer_full": _ratio(full, tokens(COMPILED)),
        "speedup_vs_compiled_trainer_task_text": _ratio(task, tokens(COMPILED, text="task")),
        "speedup_vs_trainer_task_text": _ratio(task, tokens(TRAINER, text="task")),
        "speedup_vs_reference_full": _ratio(full, tokens(REFERENCE)),
        "speedup_vs_reference_task_text": _ratio(task, tokens(REFERENCE, text="task")),
    }


def _cpu(rows: list[Row]) -> dict[str, float | None]:
    def speedup(text: str, vocabulary: int) -> float | None:
        chosen = {"device": "cpu", "text": text, "vocabulary": vocabulary}
        return _ratio(speed(rows, engine=OURS, **chosen), speed(rows, engine=TRAINER, **chosen))

    return {
        "cpu_speedup_vs_trainer": speedup("full", VOCABULARY),
        "cpu_speedup_vs_trainer_task_text": speedup("task", VOCABULARY),
        "cpu_speedup_vs_trainer_vocabulary_8000": speedup("full", SMALL_VOCABULARY),
        "cpu_trainer_workers": best_workers(rows, device="cpu", engine=TRAINER, text="full", vocabulary=VOCABULARY),
    }


def _fraction_of_peak(rows: list[Row]) -> float | None:
    """Matrix products that training needs, padding left out, against the best product of the same run."""
    peak = _best_matmul(rows)
    ours = [
        row["flops"] / row["seconds"] / 1e12
        for row in _finished(rows, device="cuda", engine=OURS, size="110m", text="full")
        if "flops" in row
    ]
    return _ratio(median(ours), peak) if ours else None


def _best_matmul(rows: list[Row]) -> float | None:
    return max((row["best_tflops"] for row in _finished(rows, engine=MATMUL)), default=None)


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else round(ours / theirs, 3)


def _finished(rows: Iterable[Row], **chosen: object) -> list[Row]:
    return [row for row in rows if "error" not in row and all(row[key] == value for key, value in chosen.items())]


def _outcome(row: Row) -> str:
    if "error" in row:
        return f"  failed: {row['error']}"
    if "best_tflops" in row:
        return f"  best {row['best_tflops']} TFLOP/s of " + ", ".join(f"{k} {v}" for k, v in row["tflops"].items())
    memory = f"{row['peak_memory_bytes'] / 1e9:>6.1f}" if "peak_memory_bytes" in row else ""
    real = row["tokens"] / row["padded_tokens"]
    return (
        f"{row['tokens_per_second']:>12,.0f}{real:>6.2f}{1000 * row['seconds'] / row['steps']:>9.1f}"
        f"{row['loss']:>7.2f}{memory}"
    )
