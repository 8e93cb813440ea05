"""The page of the recipe: against its baselines (recipe.yaml), step by step (ladder.yaml), and the screens for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.format import metric_name
from studies.tables import TASKS, dagger, gpu_of, markdown, mean_std, percent, score_table, select

Tree = dict[str, Any]
_PRETRAINED = "base"
_PRETRAINED_NOTE = "\\* all-MiniLM-L6-v2, trained on a billion sentence pairs, papers among them: no like-for-like row."
_LEAK_NOTE = "many test rows are also in train; on the others the recipe and the small pretrained encoder differ with"


def recipe_tables(results: Results) -> str:
    """Return the final comparisons, then the ladder."""
    parts: list[str] = []
    rows: list[Tree] = results.rows
    for table, head, against in (("final", "", "the recipe"), ("ladder", "The ladder, ", "the step before")):
        for task, name in TASKS.items():
            if found := select(rows, kind="cell", task=task, table=table):
                lines = score_table(found, against=against, metric=metric_name(found[0]["metric"]))
                parts += [f"**{head}{name}**", "", *lines, ""]
    how = f"Mean ± spread over all models (pre-training x fine-tuning seeds); {dagger(rows)}. Seconds are those of a run with its fine-tunings, of several that shared the GPU"
    where = f"Trained on {gpu_of(rows)}, {results.date}; `endtask compare studies/recipe.yaml` and `ladder.yaml`."
    return "\n".join([*parts, _PRETRAINED_NOTE, "", f"{how}. {where}", ""])


def recipe_summary(results: Results) -> str:
    """Return a table with a line for each task: the recipe and its alternatives."""
    others = {_PRETRAINED: "small pretrained encoder*", "no_corpus": "without corpus", "tfidf": "TF-IDF"}
    lines, seeds, notes = [], [], []
    for task, name in TASKS.items():
        found = {row["cell"]: row for row in select(results.rows, kind="cell", task=task, table="final")}
        if recipe := found.get("recipe"):
            scores = [percent(found[key]["mean"]) for key in others]
            shown = f"{name}, all rows" if _leaks(recipe) else name
            lines.append([shown, mean_std(recipe), *scores, format(recipe["flops"], ".2g")])
            seeds.append(str(recipe["models"]))
            if _leaks(recipe):
                leak_free = [percent(found[key]["leak_free"]) for key in ("recipe", *others)]
                lines.append([f"{name}, leak-free rows", *leak_free, ""])
                notes.append(f"{name}: {_LEAK_NOTE} p = {found[_PRETRAINED]['leak_free_p']:.2f}.")
    table = markdown(["", "the recipe", *others.values(), "FLOPs"], lines)
    last = f"Test micro-F1 (ChemProt) and macro-F1 of {', '.join(seeds)} models, {gpu_of(results.rows)}"
    command = "`endtask compare studies/recipe.yaml`"
    return "\n".join([*table, "", _PRETRAINED_NOTE, "", *notes, "", f"{last}, {results.date}; {command}.", ""])


def _leaks(row: Tree) -> bool:
    """Return whether test rows that are also in train change the score by more than a point."""
    return "leak_free" in row and abs(row["mean"] - row["leak_free"]) > 0.01


def screens_tables(results: Results) -> str:
    """Return the dev scores of the screens; settings have the names that they had at the time."""
    rows: list[Tree] = results.rows
    pretraining = {(row["screen"], row["stage1"]): row for row in rows if "dev" not in row}
    parts = []
    for screen in dict.fromkeys(row["screen"] for row in rows):
        lines = []
        for row in screen_means(select(rows, screen=screen)):
            values = {**pretraining.get((screen, row["stage1"]), {}).get("values", {}), **row["values"]}
            shown = ", ".join(f"`{key}={_text(value)}`" for key, value in values.items())
            lines.append([row["stage1"], row["stage2"], mean_std(row), str(row["seeds"]), shown])
        text = next((row["text"] for row in select(rows, screen=screen) if row.get("text")), None)
        table = ["| pre-training | fine-tuning | dev | seeds | what differs |", "|---|---|---:|---:|---|"]
        table += [f"| {' | '.join(line)} |" for line in lines]
        parts += [f"**{screen}**{f', {text} of text' if text else ''}", "", *table, ""]
    how = "Dev scores, mean ± spread over fine-tuning seeds on one pre-training each"
    return "\n".join([*parts, f"{how}; {gpu_of(rows)}.", ""])


def screen_means(rows: Iterable[Tree]) -> list[Tree]:
    """Return the mean dev score of each pair of variants over fine-tuning seeds."""
    pairs: dict[tuple[str, str], list[Tree]] = {}
    for row in rows:
        if "dev" in row:
            pairs.setdefault((row["stage1"], row["stage2"]), []).append(row)
    means = []
    for (stage1, stage2), members in pairs.items():
        dev = [float(row["dev"]) for row in members]
        spread = stdev(dev) if len(dev) > 1 else 0.0
        row = {"stage1": stage1, "stage2": stage2, "values": members[0]["values"]}
        means.append(row | {"mean": round(fmean(dev), 4), "std": round(spread, 4), "seeds": len(dev)})
    return means


def optimizers_table(results: Results) -> str:
    """Return the table of AdamW and Muon, measured before Muon was removed."""
    summary: Tree = results.summary
    lines = ["| | rate | tokens | loss on held-out text | dev |", "|---|---:|---:|---:|---:|"]
    for name in ("adamw", "muon"):
        loss = f"{summary[f'{name}_held_out_loss']:.3f} ± {summary[f'{name}_held_out_loss_std']:.3f}"
        dev = mean_std({"mean": summary[f"{name}_dev_score"], "std": summary[f"{name}_dev_score_std"]})
        lines.append(
            f"| {name} | {summary[f'{name}_rate']:g} | {summary[f'{name}_tokens'] / 1e6:.0f} M | {loss} | {dev} |"
        )
    seeds = len({row["seed"] for row in select(results.rows, kind="full run")})
    where = f"{summary['parameters'] / 1e6:.0f} M parameters, {seeds} seeds, {results.machine.gpu}, {results.date}"
    return "\n".join([*lines, "", f"{where}.", ""])


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)
