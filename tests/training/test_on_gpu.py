"""Tests for a GPU: attention backends agree, resume is exact, no step waits, recorded steps are equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from endtask.config import BatchSize, Settings
from endtask.encoders.base import encoders
from endtask.encoders.batch import batch_shape_for, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network, build_network
from endtask.objectives.base import BuiltObjective, Loss
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts, write_packed
from endtask.training.device import choose_device_context, move
from endtask.training.graph_replay import Backward
from endtask.training.loop import build_optimizer, train
from endtask.training.metrics_file import MetricsFile, read_metrics
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain_phase import phase_of
from endtask.weighting.equal import Equal

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.slow,
]
VOCABULARY, LONGEST = 30_000, 128
CLASSES = tuple("abcdefgh")
MASKING = Masking(0.15, 4, VOCABULARY, (0, 1, 2, 3, 4))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> PackedTexts:
    """Texts of random tokens and lengths."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.7, 0.6, 500).astype(int), 5, LONGEST)
    rows = (([2, *random.integers(5, VOCABULARY, length - 2).tolist(), 3], int(length)) for length in lengths)
    return write_packed(rows, VOCABULARY, tmp_path_factory.mktemp("texts") / "packed")


class Waiting(Classification):
    """An objective that waits for the device, so that its steps cannot be recorded."""

    def loss(self, network: Network, batch: Any) -> Loss:
        loss = super().loss(network, batch)
        assert loss.total.item() > 0
        return loss


class NotRecorded(Backward):
    """Steps as they are without recording."""

    def __init__(self, network: Any, context: DeviceContext) -> None:
        super().__init__(network, context)
        self._records = False


def make_objective(kind: str, network: Network, texts: PackedTexts) -> BuiltObjective:
    if kind == "mlm":
        size = BatchSize.parse("4096tok")
        return MaskedLM("text", TextStream("text", texts, network, batch_size=size, seed=0, masking=MASKING))
    stream = TextStream("text", texts, network, batch_size=BatchSize.parse("32"), seed=0)
    labels = np.random.default_rng(0).integers(0, len(CLASSES), len(texts.lengths))
    return (Waiting if kind == "waiting" else Classification)("text", stream, labels, rdrop=1.0)


def make_phase(texts: PackedTexts, steps: int, kind: str = "mlm", dropout: float = 0.0, **changes: Any) -> Phase:
    model = {"size": "mini", "pooling": "mean", **changes.pop("model", {})}
    settings = Settings.model_validate(
        {"device": "cuda", "model": model, "pretrain": {"checkpoint_steps": 10}, **changes}
    )
    context = choose_device_context(settings)
    special = {"pad": 0, "cls": 2, "sep": 3}
    network = build_network(settings.model, vocabulary=VOCABULARY, special_ids=special, labels=CLASSES, seed=0)
    move(network, settings, context)
    network.set_dropout(dropout)
    phase = phase_of(network, {"text": make_objective(kind, network, texts)}, Equal("text"), settings, context)
    return replace(phase, steps=steps)


def gradient_of(phase: Phase, texts: PackedTexts) -> torch.Tensor:
    """The gradient of one batch with all texts in order, so that every layout has the same tokens masked."""
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
    return torch.cat([gradient.flatten().cpu() for gradient in gradients])


@pytest.mark.parametrize("architecture", ["lean", "bert", "roberta"])
def test_attention_backends_agree(architecture: str, texts: PackedTexts) -> None:
    model = {"architecture": architecture, "attention": "padded", "pooling": "auto"}
    reference = gradient_of(make_phase(texts, 1, model=model, precision="float32", compile=False), texts)
    for attention in encoders.get(architecture).backends:
        for compiled in (False, True):
            if attention == "flex" and not compiled:
                continue
            torch._dynamo.reset()
            phase = make_phase(texts, 1, model={**model, "attention": attention}, compile=compiled)
            distance = (gradient_of(phase, texts) - reference).norm() / reference.norm()
            assert distance < 0.02, (attention, compiled)  # bfloat16 against float32


def test_a_run_broken_off_resumes_with_the_same_losses(texts: PackedTexts, tmp_path: Path) -> None:
    def curve(name: str, *, stop: bool) -> list[float]:
        def interrupt() -> None:
            if stop:
                raise KeyboardInterrupt

        try:
            run_phase(make_phase(texts, 20), tmp_path / name, label=name, on_checkpoint=interrupt)
        except KeyboardInterrupt:
            return curve(name, stop=False)
        return [row["text/mlm"] for row in read_metrics(tmp_path / name / "metrics.jsonl")]

    assert curve("broken", stop=True) == pytest.approx(curve("unbroken", stop=False), abs=1e-3)


def test_no_step_waits_for_the_device(texts: PackedTexts, tmp_path: Path) -> None:
    phase = make_phase(texts, 20)
    optimizer = build_optimizer(phase)
    metrics = MetricsFile(tmp_path / "metrics.jsonl", start=-1, every=2)
    try:
        for record in train(phase, optimizer):
            torch.cuda.set_sync_debug_mode("error" if 5 <= record.step < 15 else "default")  # raises at a wait
            metrics.add(record, flush=False, counts={"skipped": optimizer.skipped_total})
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_recorded_steps_have_the_losses_of_computed_ones(texts: PackedTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses(kind: str, backward: type[Backward]) -> list[float]:
        monkeypatch.setattr("endtask.training.loop.Backward", backward)
        phase = replace(make_phase(texts, 20, kind, dropout=0.1, compile="graphs"), learning_rate=4e-4)
        found = [next(iter(record.losses.values())) for record in train(phase, build_optimizer(phase))]
        return [value.item() for value in found]

    computed = losses("task", NotRecorded)
    assert losses("task", Backward) == pytest.approx(computed, abs=1e-3)
    assert losses("waiting", Backward) == pytest.approx(computed, abs=1e-3)  # recording fails, and is undone
