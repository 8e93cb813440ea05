"""A thread that prepares the batches of later steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread

from endtask.objectives.base import Batch
from endtask.training.distributed import part_for
from endtask.training.phase import Phase
from endtask.weighting.base import ScheduledObjective

_STEPS_AHEAD = 4
_PUT_TIMEOUT = 0.1


@dataclass(frozen=True)
class PreparedBatch:
    """A batch with its scheduled objective and costs; tokens count once for every pass over the batch.

    With several processes `batch` is this one's part, and the costs are those of the whole batch.
    """

    scheduled: ScheduledObjective
    batch: Batch
    tokens: int  # without padding
    padded_tokens: int
    flops: float


@contextmanager
def prefetched_batches(phase: Phase, start: int, end: int | None = None) -> Iterator[Iterator[list[PreparedBatch]]]:
    """Iterate over the batches of each step from `start` to `end` or the last; the thread ends with the block."""
    end = phase.steps if end is None else end
    queue: Queue[list[PreparedBatch] | BaseException] = Queue(_STEPS_AHEAD)
    stop = Event()

    def put(item: list[PreparedBatch] | BaseException) -> None:
        while not stop.is_set():
            with suppress(Full):  # the timeout lets the thread see `stop`
                queue.put(item, timeout=_PUT_TIMEOUT)
                return

    def produce() -> None:
        try:
            for step in range(start, end):
                if stop.is_set():
                    return
                put(batches_of(phase, step))
        except BaseException as error:  # raised in the thread that reads the queue
            put(error)

    thread = Thread(target=produce, name="batches", daemon=True)
    thread.start()
    try:
        yield _read(queue, end - start)
    finally:
        stop.set()
        thread.join()


def batches_of(phase: Phase, step: int) -> list[PreparedBatch]:
    """Return the batches of a step, which are a pure function of the step.

    With gradient accumulation the n-th scheduled step of an objective reads batches from n * accumulation on; a step of
    the ramp omits the last of them.
    """
    prepared = []
    for scheduled in phase.weighting.schedule(step):
        objective = phase.objectives[scheduled.objective]
        for number in range(phase.batches_in(step)):
            batch = objective.batch(scheduled.step * phase.accumulation + number)
            part = part_for(phase.context.processes, batch, phase.network)
            prepared.append(
                PreparedBatch(
                    scheduled,
                    part.pin() if phase.context.pins_memory else part,
                    objective.passes * batch.real_tokens,
                    objective.passes * batch.padded_tokens,
                    objective.flops(phase.network, batch),
                )
            )
    return prepared


def costs_by_objective(prepared: list[PreparedBatch]) -> dict[str, tuple[int, float]]:
    """Return tokens and FLOPs of a step's batches, summed by objective."""
    costs: dict[str, tuple[int, float]] = {}
    for batch in prepared:
        tokens, flops = costs.get(batch.scheduled.objective, (0, 0.0))
        costs[batch.scheduled.objective] = (tokens + batch.tokens, flops + batch.flops)
    return costs


def _read(queue: Queue[list[PreparedBatch] | BaseException], steps: int) -> Iterator[list[PreparedBatch]]:
    for _ in range(steps):
        item = queue.get()
        if isinstance(item, BaseException):
            raise item
        yield item
