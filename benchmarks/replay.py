"""What recording a step's kernels gains where a GPU waits for orders, and that it changes no loss.

    python -m benchmarks.replay

23 M parameters: fine-tuning on 32 texts a step with R-Drop, and masked LM on 32,768 tokens a step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.gpu_checks import MASKING, VOCABULARY, random_texts
from benchmarks.results_file import RESULTS, Results, write_results
from endtask.models.network import Network, build_network
from endtask.models.place import Place
from endtask.objectives.base import Loss, Objective
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task import Classification
from endtask.settings import BatchSize, Settings
from endtask.text.packed import PackedTexts
from endtask.train.device import choose_place, move
from endtask.train.loop import build_optimizer, train
from endtask.train.pretrain import phase_of
from endtask.train.replay import Backward
from endtask.weighting.equal import Equal

Row = dict[str, Any]
CLASSES = tuple("abcdefgh")
DROPOUT, RATE = 0.1, 4e-4
LIMITS = {"largest_loss_difference": 1e-3}


class OrderByOrder(Backward):
    """What records nothing."""

    def __init__(self, network: Any, place: Place) -> None:
        super().__init__(network, place)
        self._records = False


@dataclass(frozen=True)
class Case:
    """A way to compute the steps of an objective."""

    objective: str
    way: str
    compile: bool | str
    recorded: bool


WAYS: dict[str, tuple[bool | str, bool]] = {
    "as it is written": ("graphs", False),
    "as it is written, recorded": ("graphs", True),
    "compiled": (True, False),
    "compiled, recorded": (True, True),
}
CASES = tuple(
    Case(objective, way, compiled, recorded)
    for objective in ("fine-tuning", "masked LM")
    for way, (compiled, recorded) in WAYS.items()
)


class Breaking(Classification):
    """An objective that says that it may be recorded, and waits for the device."""

    def loss(self, network: Network, batch: Any) -> Loss:
        """The loss, once its value is known here."""
        loss = super().loss(network, batch)
        assert loss.total.item() > 0
        return loss


def build_objective(kind: str, network: Network, texts: PackedTexts) -> Objective:
    """What is learned: random answers will do."""
    if kind == "masked LM":
        size = BatchSize.parse("32768tok")
        return MaskedLM(kind, TextStream(kind, texts, network, batch_size=size, seed=0, masking=MASKING))
    stream = TextStream(kind, texts, network, batch_size=BatchSize.parse("32"), seed=0)
    labels = np.random.default_rng(0).integers(0, len(CLASSES), len(texts.lengths))
    return (Breaking if kind == "breaking" else Classification)(kind, stream, labels, rdrop=1.0)


def run_case(case: Case, texts: PackedTexts, *, size: str, steps: int, device: str) -> tuple[Row, list[float]]:
    """Train a little; the first quarter is not timed. Returns the row and all losses."""
    torch._dynamo.reset()
    tree = {
        "model": {"size": size, "pooling": "mean"},
        "device": device,
        "compile": case.compile if device == "cuda" else False,
    }
    settings = Settings.model_validate({**tree, "train": {"batch_size": "4096tok"}})
    place = choose_place(settings)
    special = {"pad": 0, "cls": 2, "sep": 3}
    network = build_network(settings.model, vocabulary=VOCABULARY, special_ids=special, labels=CLASSES, seed=0)
    move(network, settings, place)
    network.set_dropout(DROPOUT)
    objectives = {case.objective: build_objective(case.objective, network, texts)}
    phase = phase_of(network, objectives, Equal(case.objective), settings, place)
    phase = replace(phase, steps=steps, learning_rate=RATE)
    started, losses, marks = time.perf_counter(), [], []
    with mock.patch("endtask.train.loop.Backward", Backward if case.recorded else OrderByOrder):
        for record in train(phase, build_optimizer(phase)):
            losses.append(next(iter(record.losses.values())))
            if record.step in (steps // 4, steps):
                place.synchronize()
                marks.append(time.perf_counter())
    per_step = (marks[1] - marks[0]) / (steps - steps // 4)
    row = {
        "objective": case.objective,
        "way": case.way,
        "milliseconds_per_step": round(1000 * per_step, 2),
        "seconds_first_quarter": round(marks[0] - started, 1),
    }
    return row, [value.item() for value in losses]


def summary_of(rows: list[Row], losses: dict[tuple[str, str], list[float]]) -> dict[str, float]:
    """How much faster what is recorded is, and how far its losses are from the others."""
    times = {(row["objective"], row["way"]): row["milliseconds_per_step"] for row in rows}
    found = {
        f"{objective.replace('-', '').replace(' ', '_').lower()}_speedup{suffix}": round(
            times[objective, way] / times[objective, f"{way}, recorded"], 2
        )
        for objective in ("fine-tuning", "masked LM")
        for way, suffix in (("compiled", ""), ("as it is written", "_uncompiled"))
    }
    differences = [
        abs(one - other)
        for (objective, way), values in losses.items()
        if (objective, f"{way}, recorded") in losses
        for one, other in zip(values, losses[objective, f"{way}, recorded"], strict=True)
    ]
    return {**found, "largest_loss_difference": max(differences)}


def replay_table(results: Results) -> str:
    """Milliseconds a step, each way, with and without recording."""
    times = {(row["objective"], row["way"]): row["milliseconds_per_step"] for row in results.rows}
    titles = {"fine-tuning": "fine-tuning, 32 texts, R-Drop", "masked LM": "masked LM, 32,768 tokens"}
    lines = ["| milliseconds a step | " + " | ".join(WAYS) + " |", "|---|" + "---:|" * len(WAYS)]
    for objective, title in titles.items():
        cells = " | ".join(f"{times[objective, way]:.1f}" for way in WAYS)
        lines.append(f"| {title} | {cells} |")
    where = f"23 M parameters, {results.machine.gpu}, {results.date}; `{results.command}`."
    return "\n".join([*lines, "", where, ""])


def main() -> None:
    """Measure all ways and write `benchmarks/results/replay.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--size", default="compact")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    rows: list[Row] = []
    losses: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        texts = random_texts(Path(name) / "texts", 30_000)
        options = {"size": asked.size, "steps": asked.steps, "device": asked.device}
        for case in CASES:
            row, values = run_case(case, texts, **options)
            rows.append(row)
            losses[case.objective, case.way] = values[:20]  # later ones drift apart, as two runs of one way do
            print(row, [round(value, 5) for value in values[:6]], flush=True)
        broken, values = run_case(Case("breaking", "recorded in vain", "graphs", True), texts, **options)
        rows.append(broken)
        print(broken, values[-1], flush=True)
    summary = summary_of(rows, losses)
    write_results("replay", "python -m benchmarks.replay", rows, summary, folder=asked.out)
    print(summary)
    if summary["largest_loss_difference"] > LIMITS["largest_loss_difference"]:
        raise SystemExit("what is recorded has other losses")


if __name__ == "__main__":
    main()
