"""AdamW against Muon in stage 1: equal minutes on one GPU, several seeds, each with its own best of a few rates.

Needs a run that stands packed (`endtask run ... --until pack`). Short runs choose each optimizer's rate by the loss
on held-out text; then every seed trains for the full time and is fine-tuned. All scores are on dev.

    python -m benchmarks.optimizers --run runs/my-task --seconds 120 --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from benchmarks.results_file import RESULTS, Results, write_results
from endtask.evaluate.measures import measure_of
from endtask.evaluate.metrics import score_all
from endtask.evaluate.probabilities import class_probabilities
from endtask.models.batch import lay_out
from endtask.models.network import Network, initialize
from endtask.models.place import Place
from endtask.objectives.base import Objective
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.masking import Masking
from endtask.objectives.stream import TextStream
from endtask.objectives.task import Classification
from endtask.seeds import generator
from endtask.settings import Budget, Settings, load_settings
from endtask.task import Task
from endtask.text.packed import PackedTexts, write_packed
from endtask.text.tokenizer import load_tokenizer
from endtask.train.device import choose_place, move
from endtask.train.loop import Phase, build_optimizer, train
from endtask.train.plan import measure_cost, steps_for
from endtask.train.pretrain import phase_of
from endtask.train.start import network_for
from endtask.weighting.equal import Equal

RATES = {"adamw": (1e-3, 2e-3), "muon": (1e-2, 2e-2)}
ADAMW_RATE_BESIDE_MUON = 1e-3
"""Of the weights that are no matrices, while rates are chosen; full runs take the rate that AdamW chose."""
HELD_OUT_EVERY = 100
FINETUNE = {"learning_rate": 2e-4, "batch_size": 32, "epochs": 6}


class HeldOut:
    """The external texts without every hundredth, and those."""

    def __init__(self, texts: PackedTexts) -> None:
        self.texts = texts
        self.chosen = np.arange(0, len(texts), HELD_OUT_EVERY)

    def training_part(self, vocabulary: int, folder: Path) -> PackedTexts:
        """The others, as packed texts of their own."""
        kept = np.setdiff1d(np.arange(len(self.texts)), self.chosen)
        pieces = ((self.texts[int(place)].tolist(), int(self.texts.lengths[place])) for place in kept)
        return write_packed(pieces, vocabulary, folder)


class Ablation:
    """One network, trained again and again from other random weights, so that nothing is compiled twice."""

    def __init__(self, run: Path, scratch: Path, settings: Settings) -> None:
        self.settings, self.packed = settings, run / "pack"
        self.task = Task.read(settings.task, seed=settings.seed)
        self.place = choose_place(settings)
        self.network: Network = move(network_for(self.task, self.packed, settings), settings, self.place)
        tokenizer = load_tokenizer(self.packed / "tokenizer")
        self.masking = Masking(
            settings.train.mask_probability, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids)
        )
        self.held_out = HeldOut(PackedTexts(self.packed / "external"))
        self.external = self.held_out.training_part(len(tokenizer), scratch / "external")

    def train(self, optimizer: str, rate: float, adamw_rate: float, seed: int, budget: Budget) -> dict[str, Any]:
        """Stage 1 for the budget; returns its cost and the loss on held-out text."""
        initialize(self.network, seed, self.network.config)
        self.network.set_dropout(0.0)
        changes = {"optimizer": optimizer, "muon_learning_rate": rate if optimizer == "muon" else 1e-2}
        settings = self.settings.model_copy(update={"train": self.settings.train.model_copy(update=changes)})
        stream = TextStream(
            "external",
            self.external,
            self.network,
            batch_size=settings.train.batch_size,
            seed=seed,
            masking=self.masking,
        )
        objectives: dict[str, Objective] = {"external": MaskedLM("external", stream)}
        phase = phase_of(self.network, objectives, Equal("external"), settings, self.place)
        phase = replace(phase, seed=seed, learning_rate=adamw_rate)
        phase = replace(phase, steps=steps_for(budget, measure_cost(phase, budget)))
        started = time.perf_counter()
        tokens = sum(record.tokens for record in train(phase, build_optimizer(phase)))
        self.place.synchronize()
        seconds = time.perf_counter() - started
        loss = held_out_loss(self.network, self.held_out, self.masking, self.place)
        row = {"optimizer": optimizer, "rate": rate, "adamw_rate": adamw_rate, "seed": seed}
        row |= {"steps": phase.steps, "tokens": tokens}
        return {**row, "seconds": round(seconds, 2), "held_out_loss": round(loss, 4)}

    def finetune(self, seed: int) -> dict[str, Any]:
        """Fine-tune what was trained last; returns the dev scores after the last epoch."""
        self.network.reset_task_head(seed)
        self.network.set_dropout(0.1)
        settings = self.settings.finetune.model_validate({**self.settings.finetune.model_dump(), **FINETUNE})
        texts = PackedTexts(self.packed / "train")
        stream = TextStream("task", texts, self.network, batch_size=settings.batch_size, seed=seed)
        objective = Classification("task", stream, np.asarray(self.task.label_numbers("train")))
        phase = Phase(
            network=self.network,
            objectives={"task": objective},
            weighting=Equal("task"),
            steps=settings.epochs * stream.plan.batches_per_epoch,
            settings=settings,
            learning_rate=settings.learning_rates[0],
            seed=seed,
            place=self.place,
        )
        for _ in train(phase, build_optimizer(phase)):
            pass
        probabilities = class_probabilities(
            self.network, PackedTexts(self.packed / "dev"), batch_size=256, place=self.place
        )
        scores = score_all(self.task.label_numbers("dev"), probabilities.argmax(-1))
        return {"dev_score": round(scores[measure_of(self.task, self.settings.evaluate).name], 4)}


@torch.inference_mode()
def held_out_loss(network: Network, held_out: HeldOut, masking: Masking, place: Place, texts: int = 256) -> float:
    """Mean masked-LM loss on the held-out texts, masked the same way every time."""
    network.eval()
    layout = network.layout(int(held_out.texts.lengths.max()))
    losses, counts = [], []
    for start in range(0, len(held_out.chosen), texts):
        batch = lay_out(held_out.texts, held_out.chosen[start : start + texts], layout)
        batch = masking.apply(batch, generator(0, "held-out", start)).to(place.device)
        with place.autocast(), network.uncompiled():
            losses.append(network.masked_lm_loss(network(batch), batch).float().item())
        counts.append(batch.masked)
    return float(np.average(losses, weights=counts))


def best_rates(ablation: Ablation, seconds: float) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Each optimizer's rate with the lowest held-out loss after a short run."""
    budget = Budget.parse(f"{seconds:g}s")
    rows = [
        {
            "kind": "choose rate",
            **ablation.train(optimizer, rate, ADAMW_RATE_BESIDE_MUON if optimizer == "muon" else rate, 0, budget),
        }
        for optimizer, rates in RATES.items()
        for rate in rates
    ]
    best = {
        name: min((row for row in rows if row["optimizer"] == name), key=lambda row: float(row["held_out_loss"]))
        for name in RATES
    }
    return {name: float(row["rate"]) for name, row in best.items()}, rows


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and spreads over the seeds."""
    summary: dict[str, Any] = {}
    for name in RATES:
        full = [row for row in rows if row["kind"] == "full run" and row["optimizer"] == name]
        for key in ("held_out_loss", "dev_score"):
            values = [float(row[key]) for row in full]
            summary[f"{name}_{key}"] = round(fmean(values), 4)
            summary[f"{name}_{key}_std"] = round(stdev(values), 4) if len(values) > 1 else 0.0
        summary[f"{name}_rate"] = full[0]["rate"]
        summary[f"{name}_tokens"] = round(fmean([float(row["tokens"]) for row in full]))
    summary["parameters"] = rows[0]["parameters"]
    return summary


def optimizers_table(results: Results) -> str:
    """Both optimizers side by side."""
    figure: dict[str, Any] = results.summary
    lines = ["| | rate | tokens | loss on held-out text | dev |", "|---|---:|---:|---:|---:|"]
    for name in RATES:
        loss = f"{figure[f'{name}_held_out_loss']:.3f} ± {figure[f'{name}_held_out_loss_std']:.3f}"
        dev = f"{100 * figure[f'{name}_dev_score']:.1f} ± {100 * figure[f'{name}_dev_score_std']:.1f}"
        tokens = f"{figure[f'{name}_tokens'] / 1e6:.0f} M"
        lines.append(f"| {name} | {figure[f'{name}_rate']:g} | {tokens} | {loss} | {dev} |")
    seeds = len({row["seed"] for row in results.rows if row["kind"] == "full run"})
    size = f"{figure['parameters'] / 1e6:.0f} M parameters, {seeds} seeds"
    return "\n".join([*lines, "", f"{size}, {results.machine.gpu}, {results.date}; `{results.command}`.", ""])


def main() -> None:
    """Run everything; rows are written as they come, for a machine that may be taken away."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--task", help="the task's folder, where it has moved since the run was made")
    parser.add_argument("--scratch", type=Path, default=Path("runs/benchmark-optimizers"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seconds-to-choose", type=float, default=12.0)
    parser.add_argument("--rates", type=float, nargs=2, help="AdamW's and Muon's rate, instead of choosing them")
    parser.add_argument("--optimizers", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], help="settings that differ from the run's")
    asked = parser.parse_args()
    moved = [f"task.path={asked.task}"] if asked.task else []
    settings = load_settings(asked.run / "settings.yaml", overrides=[*moved, *asked.set])
    ablation = Ablation(asked.run, asked.scratch, settings)
    journal = asked.scratch / "rows.jsonl"
    rows: list[dict[str, Any]] = []
    if journal.exists():
        rows = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    rates = dict(zip(RATES, asked.rates, strict=True)) if asked.rates else None
    if rates is None:
        rates, chosen = best_rates(ablation, asked.seconds_to_choose)
        rows += chosen
    parameters = sum(weight.numel() for weight in ablation.network.parameters())
    for name in asked.optimizers:
        for seed in asked.seeds:
            trained = ablation.train(name, rates[name], rates["adamw"], seed, Budget.parse(f"{asked.seconds:g}s"))
            rows.append({"kind": "full run", **trained, **ablation.finetune(seed)})
            print(rows[-1], flush=True)
            rows = [{**row, "parameters": parameters} for row in rows]
            journal.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if {row["optimizer"] for row in rows if row["kind"] == "full run"} == set(RATES):
        write_results("optimizers", "python -m benchmarks.optimizers", rows, summary_of(rows), folder=asked.out)


if __name__ == "__main__":
    main()
