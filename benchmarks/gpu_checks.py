"""What can only be checked on a GPU: attention backends agree, resume holds, no step waits, saving costs little.

python -m benchmarks.gpu_checks
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results_file import RESULTS, read_results, write_results
from endtask.config import Settings
from endtask.encoders.base import encoders
from endtask.encoders.batch import batch_shape_for, lay_out
from endtask.encoders.network import Network, build_network
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts, write_packed
from endtask.training.checkpoint import Checkpoints
from endtask.training.device import choose_device_context, move
from endtask.training.loop import build_optimizer, train
from endtask.training.metrics_file import MetricsFile, read_metrics
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain_phase import phase_of
from endtask.weighting.equal import Equal

VOCABULARY, LONGEST = 30_000, 128
MASKING = Masking(0.15, 4, VOCABULARY, (0, 1, 2, 3, 4))
LIMITS = {
    "largest_gradient_distance": 0.02,  # bfloat16 against float32
    "resume_loss_difference": 1e-3,
    "checkpoints_and_curves_share": 0.02,
    "checkpoint_share_110m": 0.02,
    "bert_step_over_padded": 1.0,
}
CHECKS = {
    "attention": "attention",
    "resume": "resume",
    "waiting": "no step waits for the device",
    "saving": "a checkpoint, 110 M parameters",
    "overhead": "checkpoints and curves, 23 M parameters",
    "padding": "BERT of 23 M parameters with and without padding",
}
"""What each check calls its rows."""
Row = dict[str, Any]
_WARM_UP = 50


def random_texts(folder: Path, count: int) -> PackedTexts:
    """Texts of random words and lengths; speed and agreement do not depend on what they say."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.7, 0.6, count).astype(int), 5, LONGEST)
    texts = (([2, *random.integers(5, VOCABULARY, length - 2).tolist(), 3], int(length)) for length in lengths)
    return write_packed(texts, VOCABULARY, folder)


def make_phase(texts: PackedTexts, size: str, batch: str, steps: int, **changes: Any) -> Phase:
    """Masked LM on the texts, with settings by dotted key."""
    model = {"size": size, **changes.pop("model", {})}
    settings = Settings.model_validate({"model": model, "pretrain": {"batch_size": batch}, **changes})
    context = choose_device_context(settings)
    special = {"pad": 0, "cls": 2, "sep": 3}
    network = build_network(settings.model, vocabulary=VOCABULARY, special_ids=special, labels=("a", "b"), seed=0)
    move(network, settings, context)
    network.set_dropout(0.0)
    stream = TextStream("text", texts, network, batch_size=settings.pretrain.batch_size, seed=0, masking=MASKING)
    phase = phase_of(network, {"text": MaskedLM("text", stream)}, Equal("text"), settings, context)
    return replace(phase, steps=steps)


def loss_and_gradient(phase: Phase, texts: PackedTexts) -> tuple[float, torch.Tensor]:
    """Of one batch with all texts in their order, so that every layout has the same tokens masked."""
    network: Network = phase.network
    layout = network.layout(LONGEST)
    if network.fixed_shapes:
        tokens = -(-int(texts.lengths.sum()) // LONGEST) * LONGEST
        layout = replace(layout, fixed_shape=batch_shape_for(tokens, len(texts), MASKING.probability, layout))
    batch = MASKING.apply(lay_out(texts, np.arange(len(texts)), layout), generator(0, "checks"), layout.fixed_shape)
    batch = batch.to(phase.context.device)
    network.zero_grad()
    with phase.context.autocast():
        loss = network.masked_lm_loss(network(batch), batch)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [weight.grad for weight in network.encoder.parameters() if weight.grad is not None]
    return loss.item(), torch.cat([gradient.flatten().cpu() for gradient in gradients])


def attention_rows(texts: PackedTexts) -> list[Row]:
    """Every backend of an encoder against its padded attention in float32, on the same weights and texts."""
    cases: dict[str, dict[str, Any]] = {
        "padded, float32": {"precision": "float32", "compile": False, "model": {"attention": "padded"}},
        "padded, bfloat16": {"compile": False, "model": {"attention": "padded"}},
        "varlen": {"compile": False, "model": {"attention": "varlen"}},
        "varlen, compiled": {"model": {"attention": "varlen"}, "compile": True},
        "flex, compiled": {"model": {"attention": "flex"}, "compile": True},
        "padded, compiled": {"model": {"attention": "padded"}, "compile": True},
    }
    rows: list[Row] = []
    for architecture in ("lean", "bert", "roberta"):
        reference: torch.Tensor | None = None
        for name, changes in cases.items():
            model = {"architecture": architecture, **changes["model"]}
            if model["attention"] not in encoders.get(architecture).backends:
                continue
            phase = make_phase(texts, "compact", "16384tok", 1, **{**changes, "model": model})
            loss, gradient = loss_and_gradient(phase, texts)
            reference = gradient if reference is None else reference
            distance = round(float((gradient - reference).norm() / reference.norm()), 5)
            found = {"encoder": architecture, "backend": name, "loss": loss, "gradient_distance": distance}
            rows.append({"check": CHECKS["attention"], **found})
    return rows


def resume_row(texts: PackedTexts, folder: Path) -> Row:
    """Curves of a run broken off half-way against those of an unbroken one."""
    steps = 60

    def curve(name: str, until: int | None) -> list[float]:
        phase = make_phase(texts, "compact", "16384tok", steps)
        settings = phase.settings.model_copy(update={"checkpoint_steps": steps // 2})
        phase = replace(phase, settings=settings)
        stopped: list[None] = []

        def stop() -> None:
            stopped.append(None)
            if until is not None and len(stopped) == until:
                raise KeyboardInterrupt

        try:
            run_phase(phase, folder / name, label=name, on_checkpoint=stop)
        except KeyboardInterrupt:
            return curve(name, None)
        return [row["text/mlm"] for row in read_metrics(folder / name / "metrics.jsonl")]

    unbroken, broken = curve("unbroken", None), curve("broken", 1)
    difference = max(abs(one - other) for one, other in zip(unbroken, broken, strict=True))
    return {"check": CHECKS["resume"], "steps": steps, "largest_loss_difference": difference, "last_loss": unbroken[-1]}


def waiting_row(texts: PackedTexts, folder: Path) -> Row:
    """Ten steps and the rows of their curves while torch raises an error at any wait for the device."""
    phase = make_phase(texts, "compact", "16384tok", 20)
    optimizer = build_optimizer(phase)
    metrics = MetricsFile(folder / "waiting.jsonl", start=-1, every=2)
    for record in train(phase, optimizer):
        torch.cuda.set_sync_debug_mode("error" if 5 <= record.step < 15 else "default")
        metrics.add(record, flush=False, counts={"skipped": optimizer.skipped_total})
    return {"check": CHECKS["waiting"], "steps": 10, "waits": 0}


def overhead_row(texts: PackedTexts, folder: Path, checkpoints: int = 2) -> Row:
    """What curves and checkpoints, as by default, add to the bare steps, and how long the last one is waited for.

    At the size and batch of the preset `gpu`. Timed from the first checkpoint to the last, so that no start counts;
    bare steps before and after, since a device's speed drifts.
    """
    phase = make_phase(texts, "compact", "65536tok", 1)
    every = phase.settings.checkpoint_steps
    steps = checkpoints * every
    bare, whole = replace(phase, steps=_WARM_UP + steps // 2), replace(phase, steps=every + steps)
    before = bare_seconds(bare)
    moments: list[float] = []
    run_phase(whole, folder / "whole", label="whole", on_checkpoint=lambda: moments.append(time.perf_counter()))
    end = time.perf_counter()
    without, together = before + bare_seconds(bare), moments[-1] - moments[0]
    return {
        "check": CHECKS["overhead"],
        "steps": steps,
        "checkpoints": len(moments) - 1,
        "seconds_bare": round(without, 3),
        "seconds_bare_before": round(before, 3),
        "seconds_whole": round(together, 3),
        "share": round(together / without - 1, 4),
        "seconds_at_the_end": round(end - moments[-1], 3),
    }


def bare_seconds(phase: Phase) -> float:
    """Of a phase's steps, a few first ones left out, with nothing done between them."""
    started = 0.0
    for record in train(phase, build_optimizer(phase)):
        if record.step in (_WARM_UP, phase.steps):
            phase.context.synchronize()
            seconds, started = time.perf_counter() - started, time.perf_counter()
    return seconds


def padding_rows(texts: PackedTexts) -> list[Row]:
    """Steps of 128 texts, as task texts are: laid end to end, and as a table padded to the longest there may be."""
    rows: list[Row] = []
    for backend in ("varlen", "padded"):
        model = {"architecture": "bert", "attention": backend}
        phase = make_phase(texts, "compact", "128", _WARM_UP + 150, model=model, compile=True)
        milliseconds = round(1000 * bare_seconds(phase) / (phase.steps - _WARM_UP), 3)
        rows.append({"check": CHECKS["padding"], "backend": backend, "milliseconds_per_step": milliseconds})
    packed, padded = rows
    packed["over_padded"] = round(packed["milliseconds_per_step"] / padded["milliseconds_per_step"], 3)
    return rows


def saving_row(texts: PackedTexts, folder: Path) -> Row:
    """How long training stands still while a checkpoint of 110 M parameters is copied."""
    phase = make_phase(texts, "base", "32768tok", 40)
    optimizer = build_optimizer(phase)
    steps = train(phase, optimizer)
    for _ in range(10):
        next(steps)
    phase.context.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        next(steps)
    phase.context.synchronize()
    per_step = (time.perf_counter() - started) / 20
    checkpoints = Checkpoints(folder, phase.network, optimizer, phase.weighting)
    started = time.perf_counter()
    checkpoints.save(1, {})
    seconds = time.perf_counter() - started
    checkpoints.close()
    every = phase.settings.checkpoint_steps
    return {
        "check": CHECKS["saving"],
        "seconds_standing_still": round(seconds, 3),
        "seconds_per_step": round(per_step, 4),
        "share": round(seconds / (every * per_step), 4),
    }


def summary_of(rows: list[Row]) -> dict[str, float]:
    """What is held to a limit."""
    by_check = {name: [row for row in rows if row["check"] == check] for name, check in CHECKS.items()}
    ratios = [row["over_padded"] for row in by_check["padding"] if "over_padded" in row]  # older files have none
    return {
        "largest_gradient_distance": max(row["gradient_distance"] for row in by_check["attention"]),
        "resume_loss_difference": by_check["resume"][0]["largest_loss_difference"],
        "checkpoints_and_curves_share": by_check["overhead"][0]["share"],
        "checkpoint_share_110m": by_check["saving"][0]["share"],
        **({"bert_step_over_padded": ratios[0]} if ratios else {}),
    }


def main() -> None:
    """Run all checks and write `benchmarks/results/gpu_checks.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--again", choices=CHECKS, nargs="+", help="do these alone; the file's other rows are kept")
    asked = parser.parse_args()
    wanted = asked.again or list(CHECKS)
    rows: list[Row] = read_results("gpu_checks", asked.out).rows if asked.again else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = random_texts(folder / "few", 500), random_texts(folder / "many", 40_000)
        checks: dict[str, Callable[[], list[Row]]] = {
            "attention": lambda: attention_rows(few),
            "resume": lambda: [resume_row(many, folder)],
            "waiting": lambda: [waiting_row(many, folder)],
            "saving": lambda: [saving_row(many, folder)],
            "overhead": lambda: [overhead_row(many, folder)],
            "padding": lambda: padding_rows(many),
        }
        for wanted_name in wanted:
            torch._dynamo.reset()
            found = checks[wanted_name]()
            print(*found, sep="\n", flush=True)
            rows = [row for row in rows if row["check"] != CHECKS[wanted_name]] + found
            if asked.again or wanted_name == wanted[-1]:  # what is done is kept, whatever comes of the next
                summary = summary_of(rows)
                write_results("gpu_checks", "python -m benchmarks.gpu_checks", rows, summary, folder=asked.out)
    beyond = {name: value for name, value in summary.items() if value > LIMITS[name]}
    if beyond:
        raise SystemExit(f"beyond what is allowed: {beyond}")


if __name__ == "__main__":
    main()
