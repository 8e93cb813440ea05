"""Run a phase in a folder: resume, curves, progress bar, checkpoints and work between steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from endtask.config import Settings
from endtask.errors import TrainingError
from endtask.io.stage_folder import StageFolder
from endtask.progress import bar, say
from endtask.training.checkpoint import Checkpoints
from endtask.training.device import explained_memory_trouble
from endtask.training.loggers import Trackers, open_trackers
from endtask.training.loop import StepRecord, build_optimizer, train
from endtask.training.metrics_file import MetricsFile
from endtask.training.optimizer import Optimizer
from endtask.training.phase import Phase

TrainState = dict[str, Any]
_RATE_AFTER_TROUBLE = 0.5
_MOST_RETURNS = 3
_LOGGED_ROWS = 200
_IN_A_ROW, _SKIPPED = "skipped_in_a_row", "skipped_steps"
_SECONDS_BETWEEN = 30.0
"""A GPU may be done with an epoch sooner than a disk with its checkpoint."""

MAX_SKIPPED_STEPS = 10
"""Steps in a row with a loss that is not finite, before training goes back to its last checkpoint."""


@dataclass(frozen=True)
class Callback:
    """Work done every `steps` steps and after the last, such as scoring the dev split.

    It may change `memory`, which travels in the checkpoint, and returns values for the curves. Once it has set
    `memory["stop"]` the phase ends there.
    """

    steps: int
    action: Callable[[int, TrainState], dict[str, float]]
    at_start: bool = False
    """Whether also before the first step."""
    keep: Callable[[TrainState], None] = lambda memory: None
    """Write what the work has found so far, by the memory that the next checkpoint will have, or the end."""


def run_phase(
    phase: Phase,
    folder: Path,
    *,
    label: str,
    callback: Callback | None = None,
    on_checkpoint: Callable[[], None] = lambda: None,
    max_skipped_steps: int = MAX_SKIPPED_STEPS,
    trackers: Trackers | None = None,
) -> TrainState:
    """Train to the end, from the last checkpoint if there is one; returns the memory with its counts.

    The network is left with its weights after the last step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = build_optimizer(phase)
    runner = _PhaseRun(phase, optimizer, folder, callback, on_checkpoint, max_skipped_steps, trackers)
    checkpoints = Checkpoints(folder, phase.network, optimizer, phase.weighting, phase.refresh)
    with explained_memory_trouble(), closing(checkpoints):
        return runner.go(checkpoints, label)


def run_stage_phase(
    phase: Phase, folder: Path, stage: StageFolder, settings: Settings, *, label: str, callback: Callback | None
) -> TrainState:
    """Run a phase of a stage, with the trackers of the settings."""
    name = f"{Path(settings.output_dir).name} {label}"
    folder.mkdir(parents=True, exist_ok=True)
    with open_trackers(settings.report_to, folder, name, settings.model_dump(mode="json")) as trackers:
        return run_phase(
            phase,
            folder,
            label=label,
            callback=callback,
            on_checkpoint=stage.keep_time,
            trackers=trackers,
        )


class _TrainingBroke(Exception):
    """The losses have not been finite for too many steps in a row."""


@dataclass
class _PhaseRun:
    phase: Phase
    optimizer: Optimizer
    folder: Path
    callback: Callback | None
    on_checkpoint: Callable[[], None]
    max_skipped_steps: int
    trackers: Trackers | None
    saved: float = 0.0
    """When the last checkpoint was."""

    def go(self, checkpoints: Checkpoints, label: str) -> TrainState:
        """Train; when the losses break down go back to the last checkpoint with half the rate, a few times."""
        while True:
            start, memory = checkpoints.load() or (0, nothing_yet())
            if start == 0:
                checkpoints.save(0, memory)  # what to go back to
            self.saved = time.monotonic()
            try:
                memory = self._train(checkpoints, start, memory, label)
            except _TrainingBroke:
                self._go_back(checkpoints, label)
                continue
            if skipped := memory.get(_SKIPPED):
                say(f"{label}: {skipped} of {memory['steps']} steps had no finite loss and were skipped")
            return memory

    def _go_back(self, checkpoints: Checkpoints, label: str) -> None:
        """Halve the rate in the last checkpoint, so that a run killed from here on goes on with it too."""
        stored = checkpoints.load()
        assert stored is not None
        start, memory = stored
        memory["rate_halvings"] = memory.get("rate_halvings", 0) + 1
        if memory["rate_halvings"] > _MOST_RETURNS:
            raise TrainingError(
                f"{label}: the loss was not finite {self.max_skipped_steps} steps in a row, and again "
                f"{_MOST_RETURNS} times after going back with half the rate",
                hint="lower the learning_rate of this stage, or lengthen its warm-up",
            )
        self.optimizer.scale_rate(_RATE_AFTER_TROUBLE)
        self.optimizer.skipped_in_a_row.zero_()
        checkpoints.save(start, memory)
        say(f"{label}: the loss is no longer finite; back to step {start} with half the learning rate")

    def _train(self, checkpoints: Checkpoints, start: int, memory: TrainState, label: str) -> TrainState:
        phase = self.phase
        every = max(1, phase.steps // _LOGGED_ROWS)
        metrics = MetricsFile(self.folder / "metrics.jsonl", start=start or -1, every=every)
        if start == 0 and self.callback is not None and self.callback.at_start:
            self._run_callback(0, memory, metrics)
        with bar(label, phase.steps, done=start) as advance:
            if start == phase.steps or memory.get("stop"):
                return memory
            for record in self._steps(start):
                _count(memory, record)
                at_callback, at_refresh = self._is_callback_step(record.step), self._is_refresh_step(record.step)
                at_checkpoint = at_refresh or record.step % phase.settings.checkpoint_steps == 0
                # A row before each checkpoint: a resumed run has the same curves.
                rows = metrics.add(record, flush=at_callback or at_checkpoint, counts=self._counts())
                for row in rows:
                    self._log(self._checked(memory, row), metrics)
                if (at_callback or at_checkpoint) and self._is_sound(record.step):
                    if at_callback:
                        self._run_callback(record.step, memory, metrics)
                    if at_refresh and not memory.get("stop"):
                        self._apply_refresh(record.step, memory, metrics)
                    if at_checkpoint or self._is_due():
                        self._save(checkpoints, record.step, memory)
                advance(1, note=_note(rows[-1]) if rows else "")
                if memory.get("stop"):
                    break
        self._keep(memory)
        return memory

    def _is_due(self) -> bool:
        """Whether to save at a pause; at all of them where bits count, for trouble leads back to the last of them."""
        return self.phase.context.device.type == "cpu" or time.monotonic() - self.saved > _SECONDS_BETWEEN

    def _save(self, checkpoints: Checkpoints, step: int, memory: TrainState) -> None:
        self._keep(memory)
        checkpoints.save(step, memory)
        self.on_checkpoint()
        self.saved = time.monotonic()

    def _keep(self, memory: TrainState) -> None:
        if self.callback is not None:
            self.callback.keep(memory)

    def _steps(self, start: int) -> Iterator[StepRecord]:
        """All steps from `start` on; batches are made ready anew after each refresh."""
        every = self.phase.steps if self.phase.refresh is None else self.phase.refresh.steps
        while start < self.phase.steps:
            end = min(self.phase.steps, (start // every + 1) * every)
            yield from train(self.phase, self.optimizer, start, end)
            start = end

    def _is_refresh_step(self, step: int) -> bool:
        refresh = self.phase.refresh
        return refresh is not None and step % refresh.steps == 0 and step < self.phase.steps

    def _apply_refresh(self, step: int, memory: TrainState, metrics: MetricsFile) -> None:
        assert self.phase.refresh is not None
        self._log({"step": step, **self.phase.refresh.apply(step, memory)}, metrics)

    def _is_sound(self, step: int) -> bool:
        """Weights that no longer have finite losses are not scored, and nothing to go back to or to end with.

        One skipped step may be a matter of its batch; where a phase ends, that is let pass.
        """
        in_a_row = int(self.optimizer.skipped_in_a_row)
        if step == self.phase.steps and in_a_row > 1:
            raise _TrainingBroke
        return in_a_row == 0 or step == self.phase.steps

    def _is_callback_step(self, step: int) -> bool:
        return step == self.phase.steps or (self.callback is not None and step % self.callback.steps == 0)

    def _run_callback(self, step: int, memory: TrainState, metrics: MetricsFile) -> None:
        if self.callback is None:
            return
        row = {"step": step, **self.callback.action(step, memory)}
        self.phase.network.train()
        self._log(row, metrics)

    def _log(self, row: dict[str, float], metrics: MetricsFile) -> None:
        metrics.write(row)
        if self.trackers is not None:
            self.trackers.log(row)

    def _counts(self) -> dict[str, Tensor]:
        """The device's own counters, which travel with the curves."""
        return {_IN_A_ROW: self.optimizer.skipped_in_a_row, _SKIPPED: self.optimizer.skipped_total}

    def _checked(self, memory: TrainState, row: dict[str, float]) -> dict[str, float]:
        """A row for the file, unless its counters say that training has broken down."""
        if row.pop(_IN_A_ROW) >= self.max_skipped_steps:
            raise _TrainingBroke
        if row[_SKIPPED]:
            memory[_SKIPPED] = row[_SKIPPED]
            return row
        return {name: value for name, value in row.items() if name != _SKIPPED}


def nothing_yet() -> TrainState:
    """The counts of a phase before its first step."""
    return {"tokens": 0, "padded_tokens": 0, "matmul_flops": 0.0}


def _count(memory: TrainState, record: StepRecord) -> None:
    memory["steps"] = record.step
    memory["tokens"] += record.tokens
    memory["padded_tokens"] += record.padded_tokens
    memory["matmul_flops"] += record.flops
    for name, (tokens, flops) in record.by_objective.items():
        counts = memory.setdefault("objectives", {}).setdefault(name, {"steps": 0, "tokens": 0, "matmul_flops": 0.0})
        counts["steps"] += 1
        counts["tokens"] += tokens
        counts["matmul_flops"] += flops


def _note(row: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.3f}" for name, value in row.items() if "/" in name)
