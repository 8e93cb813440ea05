"""What recording a step's kernels gains where a GPU waits for orders, and that it changes no loss.

    python -m benchmarks.replay

23 M parameters: fine-tuning on 32 texts a step with R-Drop, and masked LM on 32,768 tokens a step. At the end a
training whose recording fails, and what memory it then holds; once more with what a failure leaves not undone.
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
from torch import Tensor

from benchmarks.gpu_checks import MASKING, VOCABULARY, random_texts
from benchmarks.results_file import RESULTS, Results, write_results
from endtask.config import BatchSize, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network, build_network
from endtask.objectives.base import BuiltObjective, Loss
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task import FinetunedTask, FinetuningLoss
from endtask.objectives.task_losses import Classification
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import choose_device_context, move
from endtask.training.graph_replay import Backward
from endtask.training.loop import build_optimizer, train
from endtask.training.pretrain import phase_of
from endtask.weighting.base import Rule
from endtask.weighting.equal import Equal
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.rule import Meta

Row = dict[str, Any]
CLASSES = tuple("abcdefgh")
DROPOUT, RATE = 0.1, 4e-4
LIMITS = {"largest_loss_difference": 1e-3, "memory_after_failure": 3.0}


class OrderByOrder(Backward):
    """What records nothing."""

    def __init__(self, network: Any, context: DeviceContext) -> None:
        super().__init__(network, context)
        self._records = False


@dataclass(frozen=True)
class Case:
    """A way to compute the steps of an objective."""

    objective: str
    way: str
    compile: bool | str
    recorded: bool
    learned: bool = False
    """Whether the gradient is looked at, as it is for learned weights."""


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


NOT_RECORDED = Case("breaking", "as it is written", "graphs", False, learned=True)
IN_VAIN = replace(NOT_RECORDED, way="recorded in vain", recorded=True)
NOT_UNDONE = replace(IN_VAIN, way="recorded in vain, not undone")


class Ones:
    """A held-out gradient that costs nothing."""

    def __init__(self, network: Network) -> None:
        first = next(network.encoder.parameters())
        self._value = torch.ones(sum(weight.numel() for weight in network.encoder.parameters()), device=first.device)
        self.parts = (slice(0, len(self._value)),)

    def __call__(self, step: int) -> Tensor:
        """The same at every step."""
        return self._value


class Breaking(Classification):
    """An objective that says that it may be recorded, and waits for the device."""

    def loss(self, network: Network, batch: Any) -> Loss:
        """The loss, once its value is known here."""
        loss = super().loss(network, batch)
        assert loss.total.item() > 0
        return loss


def build_objective(kind: str, network: Network, texts: PackedTexts) -> BuiltObjective:
    """What is learned: random answers will do."""
    if kind == "masked LM":
        size = BatchSize.parse("32768tok")
        return MaskedLM(kind, TextStream(kind, texts, network, batch_size=size, seed=0, masking=MASKING))
    stream = TextStream(kind, texts, network, batch_size=BatchSize.parse("32"), seed=0)
    labels = np.random.default_rng(0).integers(0, len(CLASSES), len(texts.lengths))
    task = (Breaking if kind == "breaking" else Classification)(kind, stream, labels)
    return FinetunedTask(task, FinetuningLoss(rdrop=0.0 if kind == "breaking" else 1.0))


def build_weighting(case: Case, network: Network, context: DeviceContext) -> Rule:
    """A weight of one, learned or not."""
    if not case.learned:
        return Equal(case.objective)
    return Meta([case.objective], Ones(network), settings=MetaConfig(), device=context.device)


def run_case(case: Case, texts: PackedTexts, *, size: str, steps: int, device: str) -> tuple[Row, list[float]]:
    """Train a little; the first quarter is not timed. Returns the row and all losses."""
    torch._dynamo.reset()
    tree = {
        "model": {"size": size, "pooling": "mean"},
        "device": device,
        "compile": case.compile if device == "cuda" else False,
    }
    settings = Settings.model_validate({**tree, "pretrain": {"batch_size": "4096tok"}})
    context = choose_device_context(settings)
    special = {"pad": 0, "cls": 2, "sep": 3}
    network = build_network(settings.model, vocabulary=VOCABULARY, special_ids=special, labels=CLASSES, seed=0)
    move(network, settings, context)
    network.set_dropout(DROPOUT)
    objectives = {case.objective: build_objective(case.objective, network, texts)}
    phase = phase_of(network, objectives, build_weighting(case, network, context), settings, context)
    phase = replace(phase, steps=steps, learning_rate=RATE)
    started, losses, markers, held = time.perf_counter(), [], [], []
    with mock.patch("endtask.training.loop.Backward", Backward if case.recorded else OrderByOrder):
        for record in train(phase, build_optimizer(phase)):
            losses.append(next(iter(record.losses.values())))
            if record.step in (steps // 4, steps):
                context.synchronize()
                markers.append(time.perf_counter())
                held.append(torch.cuda.memory_reserved() if device == "cuda" else 0)
    per_step = (markers[1] - markers[0]) / (steps - steps // 4)
    row = {
        "objective": case.objective,
        "way": case.way,
        "milliseconds_per_step": round(1000 * per_step, 2),
        "seconds_first_quarter": round(markers[0] - started, 1),
        "reserved_bytes": held,
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
    held = {row["way"]: row["reserved_bytes"][-1] for row in rows if row["objective"] == IN_VAIN.objective}
    usual = max(held[NOT_RECORDED.way], 1)
    memory = {
        "memory_after_failure": round(held[IN_VAIN.way] / usual, 3),  # the failed recording's own stays taken
        "memory_after_failure_not_undone": round(held[NOT_UNDONE.way] / usual, 3),
    }
    return {**found, **memory, "largest_loss_difference": max(differences)}


def not_undone(texts: PackedTexts, options: dict[str, Any]) -> Row:
    """What comes of a failure as torch leaves it. Nothing can be measured after it in the same process."""
    with mock.patch("endtask.training.graph_recording._undo"):
        try:
            return run_case(NOT_UNDONE, texts, **options)[0]
        except RuntimeError as error:
            row = {"objective": NOT_UNDONE.objective, "way": NOT_UNDONE.way, "milliseconds_per_step": None}
            return {**row, "reserved_bytes": [0, 0], "error": str(error).splitlines()[0]}


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
        rows += [run_case(case, texts, **options)[0] for case in (NOT_RECORDED, IN_VAIN)]
        rows.append(not_undone(texts, options))
        print(*rows[-3:], sep="\n", flush=True)
    summary = summary_of(rows, losses)
    write_results("replay", "python -m benchmarks.replay", rows, summary, folder=asked.out)
    print(summary)
    if beyond := [name for name, limit in LIMITS.items() if summary[name] > limit]:
        raise SystemExit(f"more than it may be: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
