"""Measure how fast heads are trained on few labels on a CPU, and the latency of a small model for a single text.

.venv/bin/python -m benchmarks.few_shot                             # two idle cores, a few minutes
.venv/bin/python -m benchmarks.few_shot --trials 4 --epochs 2 --size tiny --results /tmp/dry
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import endtask
from benchmarks.results_file import RESULTS, Results, write_results
from endtask.experiments.few_shot.few_shot import few_shot
from endtask.experiments.few_shot.few_shot_spec import FewShotRow, FewShotSpec
from endtask.experiments.few_shot.few_shot_variants import FewShotVariant, VariantTrainer, open_pretrained
from endtask.experiments.few_shot.label_draws import TaskRows, make_draws
from endtask.serving.latency import measure_latency

Row = dict[str, Any]
COMMAND = "python -m benchmarks.few_shot"
KINDS = {"pair": "pairs of a short form and a snippet", "tags": "queries with tagged words"}
SPLITS = {"train": 400, "dev": 50, "test": 200}
LABELS = 200
_SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
_WORDS, _QUERY, _SNIPPET = 2000, 9, 40


def write_task(folder: Path, kind: str, *, seed: int = 0) -> Path:
    """Write train, dev and test rows of made-up words; the labels can be learned from the words."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(_SYLLABLES, size=random.integers(1, 4))) for _ in range(_WORDS)]
    shares = 1.0 / np.arange(1, _WORDS + 1)
    shares /= shares.sum()
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in SPLITS.items():
        rows = [_row(kind, words, shares, random) for _ in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder


def _row(kind: str, words: list[str], shares: np.ndarray[Any, Any], random: np.random.Generator) -> Row:
    length = _QUERY if kind == "tags" else _SNIPPET
    numbers = random.choice(_WORDS, size=length, p=shares)
    chosen = [words[number] for number in numbers]
    if kind == "tags":
        return {"tokens": chosen, "tags": ["start" if number % 3 == 0 else "none" for number in numbers]}
    first = int(random.integers(length - 4))
    short = "".join(word[0] for word in chosen[first : first + 4])
    is_short = bool(random.integers(2))
    return {"text": short if is_short else short[::-1] + "x", "text_pair": " ".join(chosen), "label": "ny"[is_short]}


def make_run(folder: Path, kind: str, size: str) -> Path:
    """Make a complete run with two steps of training; its model is as fast as that of any run."""
    settings = {
        "output_dir": str(folder / f"{kind}-{size}"),
        "budget": "2steps",
        "device": "cpu",
        "task": {"path": str(write_task(folder / f"{kind}-task", kind))},
        "tokenizer": {"vocab_size": 2000},
        "model": {"size": size},
        "pretrain": {"batch_size": 8, "objectives": {"mlm": {"kind": "mlm", "texts": "task"}}, "weighting": "equal"},
        "finetune": {"epochs": 1, "max_steps": 1, "seeds": [0]},
    }
    return endtask.run(settings).folder


def time_few_shot(run: Path, trials: int, epochs: int) -> Row:
    """Time all trials by `endtask few-shot`: tokenization, the encoder's pass, training, scoring and the page."""
    spec = FewShotSpec(labels=(LABELS,), samples=max(1, trials // 2), epochs=epochs, patience=None)
    with tempfile.TemporaryDirectory() as output:
        start = time.perf_counter()
        outcome = few_shot([run], spec, Path(output) / "out")
        seconds = time.perf_counter() - start
    (entry,) = outcome.rows[0].entries
    return {"what": "side by side", "runs": entry.trials, "epochs": epochs, "seconds": seconds}


def time_whole_network(run: Path, trials: int, epochs: int) -> Row:
    """Time the same trials with the whole network at every step, without stored vectors."""
    spec = FewShotSpec(labels=(LABELS,), samples=max(1, trials // 2), epochs=epochs, patience=None)
    pretrained = open_pretrained(run)
    rows = TaskRows.of(pretrained.task)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = VariantTrainer(pretrained, rows, make_draws(rows, spec), spec, (LABELS,), Path(scratch))
        variant = FewShotVariant.of(FewShotRow(variant=pretrained.name), [pretrained], spec, "benchmark")
        loop = trainer.trials_of(variant, cached=False)
        start = time.perf_counter()
        done = len(list(loop.train(variant.trials((LABELS,))[:trials], trainer.reset_head)))
        seconds = time.perf_counter() - start
    return {"what": "one by one", "runs": done, "epochs": epochs, "seconds": seconds}


def latency(run: Path, kind: str) -> Row:
    """Time the model on one text of the task at a time."""
    texts = endtask.Task.read(run.parent / f"{kind}-task").test
    inputs = [example.text if example.text_pair is None else (example.text, example.text_pair) for example in texts]
    return {"what": "latency", **measure_latency(run, inputs)}


def summarize(rows: list[Row]) -> Row:
    """Return the headline statistics that the rows allow; names without suffix belong to pairs."""
    statistics: Row = {}
    for kind in KINDS:
        suffix = "" if kind == "pair" else f"_{kind}"
        quick, slow = (_per_minute(rows, what, kind) for what in ("side by side", "one by one"))
        if quick is not None:
            statistics[f"head_only_runs_per_minute_cpu{suffix}"] = round(quick, 1)
        if quick is not None and slow is not None:
            statistics[f"speedup_vs_one_by_one{suffix}"] = round(quick / slow, 1)
        for row in rows:
            if row["what"] == "latency" and row["kind"] == kind:
                statistics[f"latency_p50_ms_{row['size']}{suffix}"] = round(row["torch"]["p50_ms"], 3)
                statistics[f"latency_p99_ms_{row['size']}{suffix}"] = round(row["torch"]["p99_ms"], 3)
    return statistics


def _per_minute(rows: list[Row], what: str, kind: str) -> float | None:
    speeds = [60 * row["runs"] / row["seconds"] for row in rows if (row["what"], row["kind"]) == (what, kind)]
    return median(speeds) if speeds else None


def few_shot_table(results: Results) -> str:
    """Return the tables of runs per minute with and without stored vectors, and of latencies."""
    table = ["| head-only training, 200 labels | runs a minute | against one by one |", "|---|---:|---:|"]
    latencies = ["| one at a time, p50 and p99 | size | torch | ONNX Runtime |", "|---|---|---:|---:|"]
    for kind, name in KINDS.items():
        suffix = "" if kind == "pair" else f"_{kind}"
        keys = (f"head_only_runs_per_minute_cpu{suffix}", f"speedup_vs_one_by_one{suffix}")
        runs, times = (results.summary.get(key) for key in keys)
        if runs is not None:
            table.append(f"| {name} | {runs} | {f'{times} times' if times is not None else ''} |")
    rows: list[Row] = results.rows
    for row in (row for row in rows if row["what"] == "latency"):
        measured = [row["torch"], row.get("onnx", {})]
        cells = [
            f"{times['p50_ms']:.1f} ms, {times['p99_ms']:.1f} ms" if "p50_ms" in times else "" for times in measured
        ]
        latencies.append(f"| {KINDS[row['kind']]} | {row['size']} | {cells[0]} | {cells[1]} |")
    first = rows[0]
    how = f"Size {first['size']}, {first['epochs']} epochs a run, with tokenization, the encoder's pass and scoring."
    where = f"{results.machine.cores} cores ({results.machine.cpu}), {results.date}; `{COMMAND}`"
    return "\n".join([*table, "", how, "", *latencies, "", f"Measured on {where}.", ""])


def main() -> None:
    """Measure both kinds of tasks; write the results file after each measurement."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="How fast few-shot learning is on a CPU.")
    parser.add_argument("--size", default="256x3", help="model.size of the frozen encoder")
    parser.add_argument("--trials", type=int, default=100, help="head-only trials side by side")
    parser.add_argument("--reference", type=int, default=2, help="trials one by one")
    parser.add_argument("--epochs", type=int, default=50, help="of each trial")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            run = make_run(Path(folder), kind, args.size)
            measured = [
                *(partial(time_few_shot, run, args.trials, args.epochs) for _ in range(args.repeats)),
                partial(time_whole_network, run, args.reference, args.epochs),
                partial(latency, run, kind),
            ]
            for measure in measured:
                rows.append({"kind": kind, "size": args.size, **measure()})
                write_results("few_examples", COMMAND, rows, summarize(rows), args.results)
                print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
