"""Batches prepared by a thread: in order, only a few ahead, and no thread left behind."""

from __future__ import annotations

import threading
import time
from itertools import islice
from typing import Any

import pytest

from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.prefetch import batches_of, prefetched_batches
from endtask.weighting.interleave import Interleave

from .numbers import number_phase


def batch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "batches"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Any:
    assert batch_threads() == []
    yield
    assert batch_threads() == []


def count_batches(phase: Phase, monkeypatch: pytest.MonkeyPatch, name: str = "sum") -> list[int]:
    """The steps whose batch an objective was asked for, so far."""
    objective, asked = phase.objectives[name], []
    original = objective.batch
    monkeypatch.setattr(objective, "batch", lambda step: asked.append(step) or original(step))
    return asked


def test_batches_come_in_order_from_the_step_asked_for() -> None:
    phase = number_phase(weighting=Interleave("sum", "first", rho1=2), steps=9)
    with prefetched_batches(phase, 4) as batches:
        found = [[one.scheduled for one in prepared] for prepared in batches]
    assert found == [[one.scheduled for one in batches_of(phase, step)] for step in range(4, 9)]


def test_a_step_has_the_batches_of_all_its_turns() -> None:
    phase = number_phase(accumulation=2)
    prepared = batches_of(phase, 3)
    assert [(one.scheduled.objective, one.scheduled.weight, one.scheduled.step) for one in prepared] == (
        [("sum", 0.5, 3)] * 2 + [("first", 0.5, 3)] * 2
    )
    assert [one.flops for one in prepared] == [400.0] * 4
    expected = [phase.objectives["sum"].batch(step) for step in (6, 7)]
    assert [one.batch.inputs.tolist() for one in prepared[:2]] == [one.inputs.tolist() for one in expected]  # type: ignore[attr-defined]


def test_only_a_few_steps_are_prepared_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(steps=100)
    asked = count_batches(phase, monkeypatch)
    with prefetched_batches(phase, 0) as batches:
        list(islice(batches, 3))
        deadline = time.monotonic() + 5
        while len(asked) < 7 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert 7 <= len(asked) <= 8  # 3 taken, 4 waiting, 1 in hand


def test_an_error_of_the_thread_is_raised_where_its_batch_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase()
    original = phase.objectives["sum"].batch

    def batch(step: int) -> Any:
        if step == 5:
            raise OSError("the disk is gone")
        return original(step)

    monkeypatch.setattr(phase.objectives["sum"], "batch", batch)
    done: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        done.extend(record.step for record in train(phase, build_optimizer(phase)))
    assert done == [1, 2, 3, 4, 5]


def test_the_thread_ends_with_a_consumer_that_stops_early() -> None:
    phase = number_phase(steps=1000)
    for record in train(phase, build_optimizer(phase)):
        assert len(batch_threads()) == 1
        if record.step == 2:
            break
    assert batch_threads() == []


def test_the_thread_ends_with_a_consumer_that_breaks() -> None:
    phase = number_phase(steps=1000)

    class Trouble(Exception):
        pass

    def consume() -> None:
        for _ in train(phase, build_optimizer(phase)):
            raise Trouble

    with pytest.raises(Trouble):
        consume()


def test_the_thread_ends_when_the_loop_itself_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(steps=1000)

    def loss(*_: object) -> None:
        raise RuntimeError("in the loss")

    monkeypatch.setattr(phase.objectives["first"], "loss", loss)
    with pytest.raises(RuntimeError, match="in the loss"):
        list(train(phase, build_optimizer(phase)))


def test_a_thread_that_waits_with_an_error_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is full of earlier steps, and nobody comes for them."""
    phase = number_phase(steps=1000)
    original = phase.objectives["sum"].batch
    raised = threading.Event()

    def batch(step: int) -> Any:
        if step == 4:
            raised.set()
            raise OSError("the disk is gone")
        return original(step)

    monkeypatch.setattr(phase.objectives["sum"], "batch", batch)
    with prefetched_batches(phase, 0):
        assert raised.wait(5)
