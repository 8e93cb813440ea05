"""The figures of the training benchmark as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.results_file import Results
from benchmarks.training.cases import COMPILED, OURS, REFERENCE, SMALL_VOCABULARY, TRAINER

NAMES = {
    OURS: "endtask (`lean`)",
    COMPILED: "Hugging Face Trainer, BERT, compiled",
    TRAINER: "Hugging Face Trainer, BERT",
    REFERENCE: "the TLM authors' way",
}
COLUMNS = (("110m", "full"), ("110m", "task"), ("42m", "full"), ("23m", "full"))
_COLOURS = {OURS: "#0072b2", COMPILED: "#777777", TRAINER: "#999999", REFERENCE: "#bbbbbb"}
_CELL, _BAR = 250, 30
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


def training_picture(results: Results) -> str:
    """Tokens per second at 110 M parameters as bars."""
    bars = [(engine, text) for text in ("full", "task") for engine in NAMES]
    speeds = {bar: _speed(results, bar[0], "110m", bar[1]) for bar in bars}
    most = max(speed for speed in speeds.values() if speed)
    height = 40 + len(NAMES) * (_BAR + 6)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img" font-family="sans-serif">',
            "<title>Thousand real tokens per second, 110 M parameters: endtask against its peers</title>",
            f'<rect width="800" height="{height}" fill="#ffffff"/>',
            *_bars(speeds, most),
            "</svg>",
            "",
        ]
    )


def _bars(speeds: dict[tuple[str, str], float | None], most: float) -> Iterator[str]:
    for column, (text, title) in enumerate((("full", "full sequences"), ("task", "task text"))):
        left = 265 + column * (_CELL + 20)
        yield f'<text x="{left}" y="22" font-size="14" font-weight="bold" fill="#222">{title}</text>'
        for place, engine in enumerate(NAMES):
            top, speed = 34 + place * (_BAR + 6), speeds[engine, text]
            width = (_CELL - 60) * (speed or 0.0) / most
            if column == 0:
                label = NAMES[engine].replace("`", "")
                yield f'<text x="255" y="{top + 20}" text-anchor="end" font-size="13" fill="#222">{label}</text>'
            yield f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[engine]}"/>'
            shown = f"{speed / 1e3:.0f}k" if speed else "not measured"
            yield f'<text x="{left + width + 6:.1f}" y="{top + 20}" font-size="13" fill="#222">{shown}</text>'


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
