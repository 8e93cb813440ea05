"""Signals: training saves its last step, every command says how to go on, and the resumed run ends in the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from endtask.encoders.weights import load_tensors
from endtask.io.signals import Stopped, deferred_signals, requested_signal, stop_signals
from endtask.pipeline.stages import select
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.optimizer import Optimizer
from endtask.training.phase import Phase
from endtask.training.phase_runner import Callback, run_phase
from tests.conftest import Answer
from tests.toy_run import results, write_settings
from tests.training.numbers import number_phase

Command = Callable[..., Answer]
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129, "SIGUSR1": 138}


@pytest.fixture(autouse=True)
def python_handlers() -> Iterator[None]:
    """Handle Ctrl-C also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def settings(toy: Path, tmp_path: Path) -> Path:
    return write_settings(tmp_path / "settings.json", toy, tmp_path / "run")


def signal_in_step(monkeypatch: pytest.MonkeyPatch, number: int, *, name: str = "SIGTERM") -> None:
    """Send a signal to this process in a training step, counted over all phases."""
    step, calls = Optimizer.step, []

    def signalled(optimizer: Optimizer, factor: float) -> Any:
        calls.append(factor)
        if len(calls) == number:
            os.kill(os.getpid(), signal.Signals[name])
        return step(optimizer, factor)

    monkeypatch.setattr(Optimizer, "step", signalled)


@pytest.mark.parametrize("name", CODES)
def test_a_signal_in_training(settings: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
        pytest.skip(f"whoever started the tests had them ignore {name}, as nohup does")
    signal_in_step(monkeypatch, 3, name=name)  # a checkpoint is due after 2 and 4
    answer = command("run", settings, "--quiet")
    assert answer.code == CODES[name]
    by = "" if name == "SIGINT" else f" by {name}"
    assert answer.errors == [f"endtask: stopped{by}; the same command resumes from here"]
    assert load_tensors(settings.with_name("run") / "pretrain.partial" / CHECKPOINT)[1]["step"] == 3


def test_stopped_again_and_again_a_run_ends_in_the_same_bits(
    settings: Path, finished_run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every fifth step: 6 of pre-training, and 8 in each seed of fine-tuning."""
    codes = []
    while len(codes) < 10 and codes[-1:] != [0]:
        with monkeypatch.context() as patch:
            signal_in_step(patch, 5)
            codes.append(command("run", settings, "--quiet").code)
    assert codes == [143] * 4 + [0]
    assert results(settings.with_name("run")) == results(finished_run)


def test_a_signal_elsewhere_leaves_at_once(settings: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def signalled(*arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(select.Select, "run", signalled)
        answer = command("run", settings, "--quiet")
    assert (answer.code, len(answer.errors)) == (143, 1)
    assert "stopped: SIGTERM" in settings.with_name("run").joinpath("run.log").read_text()
    assert command("run", settings, "--quiet", "--until", "select").code == 0


def test_an_error_that_a_library_makes_of_an_interruption(
    settings: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(*arguments: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("half a module") from None

    monkeypatch.setattr(select.Select, "run", signalled)
    answer = command("run", settings, "--quiet")
    assert (answer.code, len(answer.errors)) == (143, 1)


def test_a_redo_that_is_stopped_goes_on_without_from(own_run: Path, command: Command, monkeypatch: Any) -> None:
    signal_in_step(monkeypatch, 2)
    answer = command("run", own_run, "--from", "finetune", "--quiet")
    assert answer.errors[-1].endswith("the same command without --from resumes from here")


def test_the_loss_diverges_after_a_stop(tmp_path: Path) -> None:
    """It goes back to the same step as without the stop."""

    def train(folder: Path, *, stops: bool) -> tuple[list[int], str]:
        steps: list[int] = []
        for attempt in range(2 if stops else 1):
            phase = number_phase(steps=12, checkpoint_steps=4)
            diverge(phase, steps, stops_at=6 if stops and attempt == 0 else None)
            with stop_signals([]):
                try:
                    run_phase(phase, folder, label="test", callback=Callback(100, lambda *_: {}), max_skipped_steps=2)
                except KeyboardInterrupt:
                    assert stops
        return steps, (folder / "metrics.jsonl").read_text()

    def diverge(phase: Phase, steps: list[int], *, stops_at: int | None) -> None:
        (objective,) = (phase.objectives[name] for name in list(phase.objectives)[:1])
        loss = objective.loss
        already = len(steps)

        def troubled(network: Any, batch: Any) -> Any:
            steps.append(len(steps))
            if stops_at is not None and len(steps) - already == stops_at:
                os.kill(os.getpid(), signal.SIGTERM)
            found = loss(network, batch)
            return type(found)(found.total * float("nan"), found.parts) if 7 <= len(steps) < 9 else found

        objective.loss = troubled  # type: ignore[method-assign]

    unbroken, stopped = train(tmp_path / "unbroken", stops=False), train(tmp_path / "stopped", stops=True)
    assert unbroken == stopped


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_a_signal_during_the_imports() -> None:
    program = """
import os, signal, sys
from endtask.cli import start
assert not {"typer", "pydantic", "numpy", "rich"} & set(sys.modules)
class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Finder())
start.main()
"""
    ended = run_python(program)
    assert (ended.returncode, ended.stderr) == (
        143,
        "endtask: stopped by SIGTERM; the same command resumes from here\n",
    )


def test_nothing_reacts_in_time() -> None:
    program = """
import os, signal, time
from contextlib import suppress
from endtask.io import signals
signals.SECONDS_TO_LEAVE = 0.05
with signals.stop_signals(["run"]):
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    ended = run_python(program)
    assert (ended.returncode, ended.stderr.count("\n")) == (143, 1)


def test_signals_that_were_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals([]):
            os.kill(os.getpid(), signal.SIGHUP)
        assert requested_signal() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_callers_handlers_are_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals([]):
        assert signal.getsignal(signal.SIGTERM) != before
        with pytest.raises(Stopped, match="SIGTERM"):
            raise_while_deferred()
    assert signal.getsignal(signal.SIGTERM) == before


def raise_while_deferred() -> None:
    with deferred_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert requested_signal() == signal.SIGTERM
