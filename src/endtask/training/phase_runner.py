"""Run a phase in a folder: resume, checkpoints, curves, progress bar and callback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from endtask.config import Settings
from endtask.io.signals import deferred_signals, requested_signal, stop
from endtask.io.stage_folder import StageFolder
from endtask.processes import Processes, current_processes
from endtask.progress import bar, say
from endtask.training.checkpoint import Checkpoints
from endtask.training.device import explain_out_of_memory
from endtask.training.distributed import gathered
from endtask.training.diverged import LossDiverged, diverged_error
from endtask.training.loggers import Trackers, open_trackers
from endtask.training.loop import StepRecord, build_optimizer, train
from endtask.training.metrics_file import MetricsFile
from endtask.training.optimizer import Optimizer
from endtask.training.pacing import Pacer
from endtask.training.phase import Phase, is_warmup_too_long, warmup_steps_of

TrainState = dict[str, Any]
_RATE_FACTOR, _MAX_ROLLBACKS = 0.5, 3
_LOGGED_ROWS = 200
_IN_A_ROW, _SKIPPED = "skipped_in_a_row", "skipped_steps"
_UNLOGGED = "unlogged"
_SECONDS_BETWEEN_CHECKPOINTS = 30.0
"""On a GPU, after dev scores: an epoch can be shorter than writing a checkpoint."""

MAX_SKIPPED_STEPS = 10
"""Steps in a row without a finite gradient, after which training goes back to the last checkpoint."""


@dataclass(frozen=True)
class Callback:
    """Hooks that a phase calls between steps, such as scoring the dev split.

    `on_step_end` runs every `every_n_steps` steps and after the last. It may change the state, which checkpoints
    contain, and returns values for the curves; `state["stop"] = True` ends the phase. `on_save` runs before each
    checkpoint and at the end, to write files that match the state.
    """

    every_n_steps: int
    on_step_end: Callable[[int, TrainState], dict[str, float]]
    at_start: bool = False
    """Call `on_step_end` before the first step too."""
    on_save: Callable[[TrainState], None] = lambda state: None


def run_phase(
    phase: Phase,
    folder: Path,
    *,
    label: str,
    callback: Callback | None = None,
    on_checkpoint: Callable[[], None] = lambda: None,
    max_skipped_steps: int = MAX_SKIPPED_STEPS,
    trackers: Trackers | None = None,
    pacer: Pacer | None = None,
    steps_after: float = 0.0,
) -> TrainState:
    """Train to the end, from the last checkpoint if there is one, and return the state with its counts.

    Afterwards the network has the weights of the last step. `steps_after` is how much training follows, in steps of
    this phase; the time left of the run includes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if is_warmup_too_long(phase.settings, phase.planned_steps):
        steps = warmup_steps_of(phase.settings, phase.planned_steps)
        say(
            f"{label}: a warm-up of {phase.settings.warmup_steps:,.0f} steps is made for a longer training than "
            f"{phase.planned_steps:,} steps; {steps:,} are used"
        )
    optimizer = build_optimizer(phase)
    processes = phase.context.processes
    checkpoints = Checkpoints(folder, phase.network, optimizer, phase.weighting, phase.refresh, processes)
    trainer = _Trainer(
        phase,
        optimizer,
        checkpoints,
        folder,
        label,
        callback,
        on_checkpoint,
        max_skipped_steps,
        trackers,
        pacer,
        steps_after,
    )
    with explain_out_of_memory(), closing(checkpoints):
        return trainer.fit()


def run_stage_phase(
    phase: Phase,
    folder: Path,
    stage: StageFolder,
    settings: Settings,
    *,
    label: str,
    callback: Callback | None,
    pacer: Pacer | None = None,
    steps_after: float = 0.0,
) -> TrainState:
    """Run a phase of a stage with the trackers of the settings, and return its state."""
    run = stage.final.parent
    tracked = settings.report_to if current_processes().is_first else ()
    with open_trackers(tracked, run, settings.model_dump(mode="json"), label) as trackers:
        return run_phase(
            phase,
            folder,
            label=label,
            callback=callback,
            on_checkpoint=stage.save_time,
            trackers=trackers,
            pacer=pacer,
            steps_after=steps_after,
        )


@dataclass
class _Trainer:
    phase: Phase
    optimizer: Optimizer
    checkpoints: Checkpoints
    folder: Path
    label: str
    callback: Callback | None
    on_checkpoint: Callable[[], None]
    max_skipped_steps: int
    trackers: Trackers | None
    pacer: Pacer | None = None
    steps_after: float = 0.0
    saved_at: float = 0.0
    """Time of the last checkpoint."""
    _saved_step: int = -1

    @property
    def processes(self) -> Processes:
        """The processes that train together."""
        return self.phase.context.processes

    def fit(self) -> TrainState:
        """Train and return the state; a diverged loss goes back to the last checkpoint with half the learning rate."""
        while True:
            start, state = self.checkpoints.load() or (0, initial_state())
            if start == 0:
                self.checkpoints.save(0, state)  # for a rollback before the first checkpoint
            self.saved_at = time.monotonic()
            try:
                with deferred_signals():
                    self._train(start, state)
            except LossDiverged as error:
                self._roll_back(error.step)
                continue
            if skipped := state.get(_SKIPPED):
                say(f"{self.label}: {skipped} of {state['steps']} steps had no finite loss and were skipped")
            return state

    def _roll_back(self, step: int) -> None:
        """Halve the learning rate in the last checkpoint; a run that is killed now resumes with the halved rate."""
        stored = self.checkpoints.load(is_planned=True)
        assert stored is not None
        start, state = stored
        state["rate_halvings"] = state.get("rate_halvings", 0) + 1
        if state["rate_halvings"] > _MAX_ROLLBACKS:
            raise diverged_error(self.phase, self.label, step, self.max_skipped_steps, _MAX_ROLLBACKS)
        self.optimizer.scale_rate(_RATE_FACTOR)
        self.optimizer.skipped_in_a_row.zero_()
        self.checkpoints.save(start, state)
        say(
            f"{self.label}: the loss is no longer finite from step {step} on; "
            f"back to step {start} with half the learning rate"
        )

    def _train(self, start: int, state: TrainState) -> None:
        """Train from step `start` to the end of the phase, and update the state."""
        if self.pacer is not None:
            self.phase = self.pacer.restored(self.phase, start)
        phase = self.phase
        every = max(1, phase.steps // _LOGGED_ROWS)
        metrics = MetricsFile(
            self.folder / "metrics.jsonl",
            start=start or -1,
            every=every,
            processes=self.processes,
            unlogged=state.pop(_UNLOGGED, None),
        )
        if start == 0 and self.callback is not None and self.callback.at_start:
            self._run_callback(0, state, metrics)
        with bar(self.label, phase.steps, done=start, after=self.steps_after) as advance:
            if start == phase.steps or state.get("stop"):
                return
            for record in self._steps(start):
                _count(state, record)
                at_callback, at_refresh = self._is_callback_step(record.step), self._is_refresh_step(record.step)
                at_checkpoint = at_refresh or record.step % phase.settings.checkpoint_steps == 0
                # A row before each checkpoint, so that a resumed run has the same curves.
                rows = metrics.add(record, flush=at_callback or at_checkpoint, counts=self._device_counts())
                for row in rows:
                    self._log(self._without_counts(row, state), metrics)
                if (at_callback or at_checkpoint) and self._is_stable(record.step):
                    if at_callback:
                        self._run_callback(record.step, state, metrics)
                    if at_refresh and not state.get("stop"):
                        self._apply_refresh(record.step, state, metrics)
                    if at_checkpoint or self._is_checkpoint_due():
                        self._save(record.step, state)
                advance(1, note=_note(rows[-1]) if rows else "", total=self.phase.steps)
                if state.get("stop"):
                    break
                self._leave_if_requested(record.step, state, metrics)
        self._on_save(state)

    def _leave_if_requested(self, step: int, state: TrainState, metrics: MetricsFile) -> None:
        """After a signal, save and raise `Stopped`; several processes do so at the same step.

        While steps are skipped nothing is saved: the last checkpoint is older, and as good.
        """
        if not self.processes.shared(requested_signal() is not None):
            return
        for row in metrics.rows(waits=True):
            self._log(self._without_counts(row, state), metrics)
        if self._is_stable(step) and self._saved_step != step:
            self._on_save(state)
            self.checkpoints.save(step, {**state, _UNLOGGED: metrics.unlogged()}, is_planned=False)
            self.on_checkpoint()
            self.checkpoints.wait()
        stop()

    def _is_checkpoint_due(self) -> bool:
        """Whether to save after a callback: always on a CPU, since a rollback to another step would change the bits."""
        waited = time.monotonic() - self.saved_at
        is_due = self.phase.context.device.type == "cpu" or waited > _SECONDS_BETWEEN_CHECKPOINTS
        return self.processes.shared(is_due)

    def _save(self, step: int, state: TrainState) -> None:
        self._on_save(state)
        self.checkpoints.save(step, state)
        self.on_checkpoint()
        self.saved_at, self._saved_step = time.monotonic(), step

    def _on_save(self, state: TrainState) -> None:
        if self.callback is not None:
            self.callback.on_save(state)

    def _steps(self, start: int) -> Iterator[StepRecord]:
        """Train from step `start` on; prefetching starts again after each refresh and each new plan."""
        every = self.phase.steps if self.phase.refresh is None else self.phase.refresh.steps
        while start < self.phase.steps:
            end = min(self.phase.steps, (start // every + 1) * every)
            if self.pacer is not None:
                end = self.pacer.next_check(self.phase, start)
            yield from train(self.phase, self.optimizer, start, end)
            start = end
            if self.pacer is not None and start < self.phase.steps:
                self.phase = self.pacer.replan(self.phase, start)

    def _is_refresh_step(self, step: int) -> bool:
        refresh = self.phase.refresh
        return refresh is not None and step % refresh.steps == 0 and step < self.phase.steps

    def _apply_refresh(self, step: int, state: TrainState, metrics: MetricsFile) -> None:
        refresh = self.phase.refresh
        assert refresh is not None
        values = refresh.apply(step, state)
        if self.processes.count > 1:
            refresh.load_state(self.processes.first_of(refresh.state()))
        self._log({"step": step, **values}, metrics)

    def _is_stable(self, step: int) -> bool:
        """Whether to score and save the weights: not while steps are skipped.

        A single skipped last step may be the fault of its batch; raise `LossDiverged` if the step before was skipped
        too.
        """
        in_a_row = int(self.optimizer.skipped_in_a_row)
        is_last = step == self.phase.steps
        if is_last and in_a_row > 1:
            raise LossDiverged(step - in_a_row + 1)
        return in_a_row == 0 or is_last

    def _is_callback_step(self, step: int) -> bool:
        return step == self.phase.steps or (self.callback is not None and step % self.callback.every_n_steps == 0)

    def _run_callback(self, step: int, state: TrainState, metrics: MetricsFile) -> None:
        if self.callback is None:
            return
        with gathered(self.phase.network):
            row = {"step": step, **self.callback.on_step_end(step, state)}
        state.update(self.processes.shared(state))  # equal decisions, such as to stop
        self.phase.network.train()
        self._log(row, metrics)

    def _log(self, row: dict[str, float], metrics: MetricsFile) -> None:
        metrics.write(row)
        if self.trackers is not None:
            self.trackers.log(row)

    def _device_counts(self) -> dict[str, Tensor]:
        """Return the optimizer's counters, which are on the device and are fetched with the curves."""
        return {_IN_A_ROW: self.optimizer.skipped_in_a_row, _SKIPPED: self.optimizer.skipped_total}

    def _without_counts(self, row: dict[str, float], state: TrainState) -> dict[str, float]:
        """Return the row to log, without counts of zero; raise `LossDiverged` after too many skipped steps."""
        in_a_row = int(row.pop(_IN_A_ROW))
        if in_a_row >= self.max_skipped_steps:
            raise LossDiverged(int(row["step"]) - in_a_row + 1)
        if row[_SKIPPED]:
            state[_SKIPPED] = row[_SKIPPED]
            return row
        return {name: value for name, value in row.items() if name != _SKIPPED}


def initial_state() -> TrainState:
    """Return the counts of a phase before its first step."""
    return {"tokens": 0, "padded_tokens": 0, "matmul_flops": 0.0}


def _count(state: TrainState, record: StepRecord) -> None:
    """Add the costs of a step to the state."""
    state["steps"] = record.step
    state["tokens"] += record.tokens
    state["padded_tokens"] += record.padded_tokens
    state["matmul_flops"] += record.flops
    for name, (tokens, flops) in record.by_objective.items():
        counts = state.setdefault("objectives", {}).setdefault(name, {"steps": 0, "tokens": 0, "matmul_flops": 0.0})
        counts["steps"] += 1
        counts["tokens"] += tokens
        counts["matmul_flops"] += flops


def _note(row: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.3f}" for name, value in row.items() if "/" in name)
