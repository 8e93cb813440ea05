"""Run a phase in a folder: resume, curves, progress bar, checkpoints and work between steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.progress import bar
from endtask.train.checkpoint import load_checkpoint, save_checkpoint
from endtask.train.loop import Phase, build_optimizer, train
from endtask.train.metrics_file import MetricsFile

Memory = dict[str, Any]


@dataclass(frozen=True)
class Pause:
    """Work done every `steps` steps and after the last, such as scoring the dev split.

    It may change `memory`, which travels in the checkpoint, and returns values for the curves.
    """

    steps: int
    work: Callable[[int, Memory], dict[str, float]]


def run_phase(
    phase: Phase,
    folder: Path,
    *,
    label: str,
    checkpoint_steps: int,
    pause: Pause | None = None,
    on_checkpoint: Callable[[], None] = lambda: None,
) -> Memory:
    """Train to the end, from the last checkpoint if there is one; returns the memory with its token counts."""
    folder.mkdir(parents=True, exist_ok=True)
    phase.network.to(phase.device)
    optimizer = build_optimizer(phase)
    start, memory = load_checkpoint(folder, phase.network, optimizer) or (
        0,
        {"tokens": 0, "padded_tokens": 0},
    )
    metrics = MetricsFile(folder / "metrics.jsonl", start=start, every=max(1, phase.steps // 200))
    with bar(label, phase.steps, done=start) as advance:
        for record in train(phase, optimizer, start):
            memory["tokens"] += record.tokens
            memory["padded_tokens"] += record.padded_tokens
            last = record.step == phase.steps
            at_pause = pause is not None and (record.step % pause.steps == 0 or last)
            saves = at_pause or last or record.step % checkpoint_steps == 0
            # A row before each checkpoint: a resumed run has the same curves, and no broken loss is ever kept.
            row = metrics.add(record, flush=saves)
            if pause is not None and at_pause:
                metrics.write({"step": record.step, **pause.work(record.step, memory)})
                phase.network.train()
            if saves:
                save_checkpoint(folder, phase.network, optimizer, record.step, memory)
                on_checkpoint()
            advance(1, note=_note(row) if row else "")
    return memory


def _note(row: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.3f}" for name, value in row.items() if "/" in name)
