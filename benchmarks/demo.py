"""Measure the demo: the score of every seed, the cost of every stage, and the difference between both runs.

    .venv/bin/python -m benchmarks.demo [FOLDER]

FOLDER holds the demo's runs; finished runs are reused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.results_file import Results, write_results
from endtask.demo import run_demo
from endtask.reporting.plots import BarGroup, bar_chart
from endtask.reporting.svg import picture


def seed_rows(folder: Path, run: str) -> list[dict[str, Any]]:
    """Return a row for each fine-tuning seed: the dev score that chose the epoch, and the test score."""
    results = json.loads((folder / run / "evaluate" / "results.json").read_text(encoding="utf-8"))
    rows = []
    for result in results["seeds"]:
        seed_file = folder / run / "finetune" / f"seed-{result['seed']}" / "result.json"
        dev = json.loads(seed_file.read_text(encoding="utf-8"))["dev"]["accuracy"]
        test = result["scores"]["accuracy"]
        rows.append({"arm": run, "seed": result["seed"], "dev_accuracy": dev, "test_accuracy": test})
    return rows


def stage_rows(folder: Path, run: str) -> list[dict[str, Any]]:
    """Return a row for each stage: seconds, and tokens and FLOPs if it trained."""
    rows = []
    for path in sorted((folder / run).glob("*/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        counts = manifest["counts"]
        trained = {key: counts[key] for key in ("tokens", "flops") if key in counts}
        rows.append({"arm": run, "stage": manifest["stage"], "seconds": manifest["seconds"], **trained})
    return rows


def demo_table(results: Results) -> str:
    """Return the table of the baseline and both runs."""
    summary: dict[str, Any] = results.summary
    lines = ["| | test accuracy | seconds | corpus text |", "|---|---:|---:|---:|"]
    lines.append(f"| TF-IDF + logistic regression | {100 * summary['tfidf']:.1f} |  |  |")
    for title, key, text in (
        ("the same model, task texts only", "without_corpus", ""),
        ("the model with the retrieved corpus", "with_corpus", f"{summary['corpus_megabytes_kept']:.1f} MB"),
    ):
        score = f"{100 * summary[f'{key}_mean']:.1f} ± {100 * summary[f'{key}_std']:.1f}"
        lines.append(f"| {title} | {score} | {summary[f'{key}_seconds']:.0f} | {text} |")
    test = f"paired permutation test over {summary['test_rows']} test rows, p = {summary['p_value']:.4f}"
    where = f"{results.machine.cores} cores ({results.machine.cpu}), {results.date}"
    note = f"Mean ± spread over 3 fine-tuning seeds; {test}. Measured by `{results.command}` on {where}."
    return "\n".join([*lines, "", note, ""])


def demo_picture(results: Results) -> str:
    """Return the scores as a bar chart."""
    titles = {
        "tfidf": "TF-IDF + logistic regression",
        "without_corpus_mean": "task texts only",
        "with_corpus_mean": "with the retrieved corpus",
    }
    scores: dict[str, Any] = {title: results.summary[key] for key, title in titles.items()}
    groups = [BarGroup(title, (value,), (f"{100 * value:.1f}",)) for title, value in scores.items()]
    chart = bar_chart(groups, ("accuracy",), title="Test accuracy")
    return picture("Demo: test accuracy with and without the retrieved corpus", [chart])


def main() -> None:
    """Run the demo and write its results file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/demo")
    outcome = run_demo(folder)
    baseline, without, with_corpus = outcome.rows
    rows = [{"arm": "tfidf", "test_accuracy": baseline.mean}]
    for run in ("without-corpus", "with-corpus"):
        rows += seed_rows(folder, run) + stage_rows(folder, run)
    summary = {
        "tfidf": baseline.mean,
        "without_corpus_mean": without.mean,
        "without_corpus_std": without.std,
        "with_corpus_mean": with_corpus.mean,
        "with_corpus_std": with_corpus.std,
        "gain": outcome.gain,
        "p_value": outcome.p_value,
        "test_rows": outcome.test_rows,
        "corpus_megabytes_kept": with_corpus.text_megabytes,
        "without_corpus_seconds": without.seconds,
        "with_corpus_seconds": with_corpus.seconds,
    }
    print(write_results("demo", "python -m benchmarks.demo", rows, summary))


if __name__ == "__main__":
    main()
