"""The figures of the training benchmark as a table and as a picture."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results
from benchmarks.training.cases import COMPILED, OURS, REFERENCE, SMALL_VOCABULARY, TRAINER
from endtask.reporting.plots import BarGroup, bar_chart, picture

NAMES = {
    OURS: "endtask (`lean`)",
    COMPILED: "Hugging Face Trainer, BERT, compiled",
    TRAINER: "Hugging Face Trainer, BERT",
    REFERENCE: "the TLM authors' way",
}
COLUMNS = (("110m", "full"), ("110m", "task"), ("42m", "full"), ("23m", "full"))
_SENTENCES = {
    "fraction_of_matmul_peak_110m": "Matrix products at 110 M parameters: {:.2f} of the best one of the same run.",
    "speedup_vs_trainer_full": "Against the Trainer on full sequences: {:.1f} times as fast.",
    "speedup_vs_trainer_task_text": "Against the Trainer on task text as it comes, short sentences: {:.1f} times.",
    "speedup_vs_compiled_trainer_full": "Against the compiled Trainer on full sequences: {:.1f} times.",
    "speedup_vs_reference_full": "Against the authors' way on full sequences: {:.1f} times.",
    "cpu_speedup_vs_trainer": "Against the Trainer on two CPU cores (128 x 2, full sequences): {:.1f} times.",
}


def training_table(results: Results) -> str:
    """Real tokens per second of every engine, and the ratios."""
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
    return "\n".join([*table, "", f"{how}; `{results.command}`.", "", *_facts(results), ""])


def replay_table(results: Results) -> str:
    """Milliseconds of a step as written and compiled, with and without recorded kernels."""
    ways = ("as it is written", "as it is written, recorded", "compiled", "compiled, recorded")
    titles = {"fine-tuning": "fine-tuning, 32 texts, R-Drop", "masked LM": "masked LM, 32,768 tokens"}
    times: dict[tuple[Any, Any], Any] = {
        (row["objective"], row["way"]): row["milliseconds_per_step"] for row in results.rows
    }
    lines = ["| milliseconds a step | " + " | ".join(ways) + " |", "|---|" + "---:|" * len(ways)]
    for objective, title in titles.items():
        lines.append(f"| {title} | {' | '.join(f'{times[objective, way]:.1f}' for way in ways)} |")
    where = f"23 M parameters, {results.machine.gpu}, {results.date}; `endtask compare studies/replay.yaml` compares whole runs."
    return "\n".join([*lines, "", where, ""])


def training_picture(results: Results) -> str:
    """Tokens per second at 110 M parameters as bars."""
    groups = []
    for text, title in (("full", "full sequences"), ("task", "task text")):
        speeds = [_speed(results, engine, "110m", text) for engine in NAMES]
        shown = tuple(f"{speed / 1e3:.0f}k" if speed else "not measured" for speed in speeds)
        groups.append(BarGroup(title, tuple(speed or 0.0 for speed in speeds), shown))
    engines = [name.replace("`", "") for name in NAMES.values()]
    chart = bar_chart(groups, engines, title="Real tokens per second, 110 M parameters")
    return picture("Thousand real tokens per second, 110 M parameters: endtask against its peers", [chart])


def _facts(results: Results) -> list[str]:
    found = {name: results.summary.get(name) for name in _SENTENCES}
    return [
        f"- {sentence.format(value)}"
        for name, sentence in _SENTENCES.items()
        if isinstance(value := found[name], int | float)
    ]


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
