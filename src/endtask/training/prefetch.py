"""Batches made ready ahead of the steps that use them, by a thread of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread

from endtask.objectives.base import Batch
from endtask.training.phase import Phase
from endtask.weighting.base import ScheduledObjective

_STEPS_AHEAD = 4
_PATIENCE_SECONDS = 0.1


@dataclass(frozen=True)
class PreparedBatch:
    """One batch of a step, whose turn it is, and what it costs; tokens count once for every reading of the batch."""

    scheduled: ScheduledObjective
    batch: Batch
    tokens: int  # without padding
    padded_tokens: int
    flops: float


@contextmanager
def prefetched_batches(phase: Phase, start: int, end: int | None = None) -> Iterator[Iterator[list[PreparedBatch]]]:
    """The batches of every step from `start` to the last, or to `end`, in order; the thread ends with the block."""
    end = phase.steps if end is None else end
    queue: Queue[list[PreparedBatch] | BaseException] = Queue(_STEPS_AHEAD)
    stop = Event()

    def put(item: list[PreparedBatch] | BaseException) -> None:
        while not stop.is_set():
            with suppress(Full):  # look up now and then whether anyone still wants it
                queue.put(item, timeout=_PATIENCE_SECONDS)
                return

    def produce() -> None:
        try:
            for step in range(start, end):
                if stop.is_set():
                    return
                put(batches_of(phase, step))
        except BaseException as error:  # handed over, to be raised where the batch is wanted
            put(error)

    thread = Thread(target=produce, name="batches", daemon=True)
    thread.start()
    try:
        yield _take(queue, end - start)
    finally:
        stop.set()
        thread.join()


def batches_of(phase: Phase, step: int) -> list[PreparedBatch]:
    """All batches of one step: a pure function of the step.

    With several batches per step an objective's n-th turn reads its batches from n times that number on; while the
    number still grows, those it does not take are left out.
    """
    prepared = []
    for scheduled in phase.weighting.schedule(step):
        objective = phase.objectives[scheduled.objective]
        for number in range(phase.batches_in(step)):
            batch = objective.batch(scheduled.step * phase.accumulation + number)
            prepared.append(
                PreparedBatch(
                    scheduled,
                    batch.pin() if phase.context.pins_memory else batch,
                    objective.passes * batch.real_tokens,
                    objective.passes * batch.padded_tokens,
                    objective.flops(phase.network, batch),
                )
            )
    return prepared


def costs_by_objective(prepared: list[PreparedBatch]) -> dict[str, tuple[int, float]]:
    """Tokens and matrix products of a step's batches, summed by objective."""
    costs: dict[str, tuple[int, float]] = {}
    for one in prepared:
        tokens, flops = costs.get(one.scheduled.objective, (0, 0.0))
        costs[one.scheduled.objective] = (tokens + one.tokens, flops + one.flops)
    return costs


def _take(queue: Queue[list[PreparedBatch] | BaseException], steps: int) -> Iterator[list[PreparedBatch]]:
    for _ in range(steps):
        item = queue.get()
        if isinstance(item, BaseException):
            raise item
        yield item
