"""The page of the training benchmark: headline statistics, tables and picture."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.job import finished, ratio
from benchmarks.results_file import Results, fact_lines
from benchmarks.training.cases import COMPILED, ENDTASK, MATMUL, REFERENCE, SMALL_VOCABULARY, TRAINER, VOCABULARY, Row
from endtask.reporting.plots import BarGroup, bar_chart
from endtask.reporting.svg import picture

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
"""The statistics of a complete results file."""


def summarize(rows: list[Row]) -> Row:
    """Return the headline statistics, without those of failed or missing measurements."""
    statistics = {**_gpu(rows), **_cpu(rows), "measurements": sum("error" not in row for row in rows)}
    return {name: value for name, value in statistics.items() if value is not None}


def speed(rows: Iterable[Row], **values: object) -> float | None:
    """Return tokens per second with the best number of workers, the median over repeats; None if not measured."""
    by_workers: dict[int, list[float]] = {}
    for row in finished(rows, **{"vocabulary": VOCABULARY, **values}):
        by_workers.setdefault(row["workers"], []).append(row["tokens_per_second"])
    return max(map(median, by_workers.values()), default=None)


def best_workers(rows: Iterable[Row], **values: object) -> int | None:
    """Return the number of workers with which an engine was fastest."""
    fastest = max(finished(rows, **values), key=lambda row: row["tokens_per_second"], default=None)
    return None if fastest is None else fastest["workers"]


def _gpu(rows: list[Row]) -> dict[str, float | None]:
    def tokens(engine: str, size: str = "110m", text: str = "full") -> float | None:
        return speed(rows, device="cuda", engine=engine, size=size, text=text)

    full, task = tokens(ENDTASK), tokens(ENDTASK, text="task")
    return {
        "tokens_per_second_110m": full,
        "tokens_per_second_42m": tokens(ENDTASK, "42m"),
        "tokens_per_second_23m": tokens(ENDTASK, "23m"),
        "tokens_per_second_110m_task_text": task,
        "fraction_of_matmul_peak_110m": _fraction_of_peak(rows),
        "best_matmul_tflops": _best_matmul(rows),
        "speedup_vs_trainer_full": ratio(full, tokens(TRAINER)),
        "speedup_vs_trainer_full_42m": ratio(tokens(ENDTASK, "42m"), tokens(TRAINER, "42m")),
        "speedup_vs_trainer_full_23m": ratio(tokens(ENDTASK, "23m"), tokens(TRAINER, "23m")),
        "speedup_vs_compiled_trainer_full": ratio(full, tokens(COMPILED)),
        "speedup_vs_compiled_trainer_task_text": ratio(task, tokens(COMPILED, text="task")),
        "speedup_vs_trainer_task_text": ratio(task, tokens(TRAINER, text="task")),
        "speedup_vs_reference_full": ratio(full, tokens(REFERENCE)),
        "speedup_vs_reference_task_text": ratio(task, tokens(REFERENCE, text="task")),
    }


def _cpu(rows: list[Row]) -> dict[str, float | None]:
    def speedup(
        text: str, vocabulary: int = VOCABULARY, size: str = "128x2", precision: str = "float32"
    ) -> float | None:
        values = {"device": "cpu", "text": text, "vocabulary": vocabulary, "size": size, "precision": precision}
        return ratio(speed(rows, engine=ENDTASK, **values), speed(rows, engine=TRAINER, **values))

    return {
        "cpu_speedup_vs_trainer": speedup("full"),
        "cpu_speedup_vs_trainer_task_text": speedup("task"),
        "cpu_speedup_vs_trainer_mini": speedup("full", size="mini"),
        "cpu_speedup_vs_trainer_mini_task_text": speedup("task", size="mini"),
        "cpu_speedup_vs_trainer_mini_bfloat16": speedup("full", size="mini", precision="bfloat16"),
        "cpu_speedup_vs_trainer_mini_bfloat16_task_text": speedup("task", size="mini", precision="bfloat16"),
        "cpu_speedup_of_bfloat16": ratio(_of_mini(rows, "bfloat16"), _of_mini(rows, "float32")),
        "cpu_speedup_vs_trainer_vocabulary_8000": speedup("full", SMALL_VOCABULARY),
        "cpu_trainer_workers": best_workers(rows, device="cpu", engine=TRAINER, text="full", vocabulary=VOCABULARY),
    }


def _of_mini(rows: list[Row], precision: str) -> float | None:
    """Return endtask's speed on two CPU cores with the shape of endtask-mini."""
    return speed(rows, device="cpu", engine=ENDTASK, size="mini", text="full", precision=precision)


def _fraction_of_peak(rows: list[Row]) -> float | None:
    """Return the FLOPs per second of training, without padding, over those of the best product of the same run."""
    peak = _best_matmul(rows)
    rates = [
        row["flops"] / row["seconds"] / 1e12
        for row in finished(rows, device="cuda", engine=ENDTASK, size="110m", text="full")
        if "flops" in row
    ]
    return ratio(median(rates), peak) if rates else None


def _best_matmul(rows: list[Row]) -> float | None:
    return max((row["best_tflops"] for row in finished(rows, engine=MATMUL)), default=None)


NAMES = {
    ENDTASK: "endtask (`lean`)",
    COMPILED: "Hugging Face Trainer, BERT, compiled",
    TRAINER: "Hugging Face Trainer, BERT",
    REFERENCE: "the TLM authors' code",
}
COLUMNS = (("110m", "full"), ("110m", "task"), ("42m", "full"), ("23m", "full"))
_SENTENCES = {
    "fraction_of_matmul_peak_110m": "Matrix products at 110 M parameters: {:.2f} of the best one of the same run.",
    "speedup_vs_trainer_full": "Against the Trainer on full sequences: {:.1f} times as fast.",
    "speedup_vs_trainer_task_text": "Against the Trainer on task text, single short sentences: {:.1f} times.",
    "speedup_vs_compiled_trainer_full": "Against the compiled Trainer on full sequences: {:.1f} times.",
    "speedup_vs_reference_full": "Against the authors' code on full sequences: {:.1f} times.",
    "cpu_speedup_vs_trainer": "Against the Trainer on two CPU cores (128 x 2, full sequences): {:.1f} times.",
    "cpu_speedup_vs_trainer_mini": "With the shape of endtask-mini (256 x 4) on two CPU cores: {:.1f} times.",
    "cpu_speedup_vs_trainer_mini_task_text": "The same on task text: {:.1f} times.",
    "cpu_speedup_of_bfloat16": "In bfloat16 by AMX, of which that machine has the instructions: {:.1f} times its own speed in float32.",
    "cpu_speedup_vs_trainer_mini_bfloat16": "Against the Trainer in bfloat16: {:.1f} times.",
    "cpu_speedup_vs_trainer_mini_bfloat16_task_text": "The same on task text: {:.1f} times.",
}


def training_table(results: Results) -> str:
    """Return the table of real tokens per second of every engine, and the speedups."""
    table = [
        "| thousand real tokens per second | 110 M, full sequences | 110 M, task text | 42 M, full | 23 M, full |",
        "|---|---:|---:|---:|---:|",
    ]
    for engine, name in NAMES.items():
        cells = [_thousands(_speed(results, engine, size, text)) for size, text in COLUMNS]
        table.append(f"| {name} | {' | '.join(cells)} |")
    rows = next(row["rows"] for row in results.rows if row["device"] == "cuda")
    machine = f"{results.machine.gpu}, {results.date}"
    how = f"Batches of {rows} x 128 tokens, 15% masked, vocabulary 30,522, all in one run on one {machine}"
    return "\n".join([*table, "", f"{how}; `{results.command}`.", "", *fact_lines(results, _SENTENCES), ""])


def replay_table(results: Results) -> str:
    """Return the table of milliseconds of a step, compiled or not, with and without recorded kernels."""
    modes = ("as it is written", "as it is written, recorded", "compiled", "compiled, recorded")
    titles = {"fine-tuning": "fine-tuning, 32 texts, R-Drop", "masked LM": "masked LM, 32,768 tokens"}
    times: dict[tuple[Any, Any], Any] = {
        (row["objective"], row["way"]): row["milliseconds_per_step"] for row in results.rows
    }
    heads = [mode.replace("as it is written", "not compiled") for mode in modes]
    lines = ["| milliseconds a step | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(modes)]
    for objective, title in titles.items():
        lines.append(f"| {title} | {' | '.join(f'{times[objective, mode]:.1f}' for mode in modes)} |")
    where = f"23 M parameters, {results.machine.gpu}, {results.date}; `endtask compare studies/replay.yaml` compares whole runs."
    return "\n".join([*lines, "", where, ""])


def training_picture(results: Results) -> str:
    """Return a bar chart of tokens per second at 110 M parameters."""
    groups = []
    for text, title in (("full", "full sequences"), ("task", "task text")):
        speeds = [_speed(results, engine, "110m", text) for engine in NAMES]
        labels = tuple(f"{speed / 1e3:.0f}k" if speed else "not measured" for speed in speeds)
        groups.append(BarGroup(title, tuple(speed or 0.0 for speed in speeds), labels))
    engines = [name.replace("`", "") for name in NAMES.values()]
    chart = bar_chart(groups, engines, title="Real tokens per second, 110 M parameters")
    return picture("Thousand real tokens per second, 110 M parameters: endtask against its peers", [chart])


def _speed(results: Results, engine: str, size: str, text: str) -> float | None:
    rows: list[dict[str, Any]] = [
        row
        for row in results.rows
        if (row["engine"], row["size"], row["text"], row["device"]) == (engine, size, text, "cuda")
        and row["vocabulary"] != SMALL_VOCABULARY
        and "tokens_per_second" in row
    ]
    return max(float(row["tokens_per_second"]) for row in rows) if rows else None


def _thousands(speed: float | None) -> str:
    return f"{speed / 1e3:,.0f}" if speed else ""
