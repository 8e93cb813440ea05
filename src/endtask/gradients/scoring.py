"""Score many batches that a thread prepares, and calibrate the scores of all targets to a common scale."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.device_context import DeviceContext

_BATCHES_AHEAD = 4


class Pinnable(Protocol):
    """A batch, or several, with a copy in pinned memory."""

    def pin(self) -> Self: ...


AnyBatch = TypeVar("AnyBatch", bound=Pinnable)


def score_batches(
    batches: Iterable[AnyBatch], score: Callable[[AnyBatch], Tensor], context: DeviceContext
) -> Iterator[Tensor]:
    """Yield the scores of each batch in order, on the CPU; queues the next batch before it waits for a GPU.

    >>> context = DeviceContext(torch.device("cpu"))
    >>> list(score_batches(iter(["a", "bc"]), lambda batch: torch.tensor([len(batch)]), context))
    [tensor([1]), tensor([2])]
    """
    previous: _AsyncCopy | None = None
    for batch in prefetch(batches, context):
        current = _AsyncCopy(score(batch))
        if previous is not None:
            yield previous.wait()
        previous = current
    if previous is not None:
        yield previous.wait()


def prefetch(batches: Iterable[AnyBatch], context: DeviceContext) -> Iterator[AnyBatch]:
    """Yield the batches that a thread prepares, in pinned memory for a GPU."""
    source = iter(batches)

    def prepare() -> AnyBatch | None:
        batch = next(source, None)
        return batch.pin() if batch is not None and context.pins_memory else batch

    pool = ThreadPoolExecutor(1, thread_name_prefix="candidates")
    try:
        futures: deque[Future[AnyBatch | None]] = deque(pool.submit(prepare) for _ in range(_BATCHES_AHEAD))
        while (batch := futures.popleft().result()) is not None:
            futures.append(pool.submit(prepare))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


def batches_by_length(lengths: NDArray[np.int64], most_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of texts of similar length in batches of about `most_tokens` tokens.

    >>> [indices.tolist() for indices in batches_by_length(np.array([9, 2, 8, 3]), 10)]
    [[1, 3], [2], [0]]
    """
    rising = np.argsort(lengths, kind="stable")
    ends = np.cumsum(lengths[rising]) // most_tokens
    yield from np.split(rising, np.flatnonzero(np.diff(ends)) + 1)


@dataclass(frozen=True)
class Calibration:
    """Mean and standard deviation of each column's scores over a sample of the candidates.

    Losses differ in the size of their gradients, and folds in their models. Standardised, every target has the same
    influence.

    >>> scores = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> Calibration.of(scores).apply(scores).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(cls, scores: Tensor) -> Calibration:
        """Return the calibration from a sample of scores: (candidates, columns)."""
        wide = scores.double()
        deviation = wide.std(dim=0, correction=0)
        return cls(wide.mean(0).float().cpu().numpy(), deviation.float().cpu().numpy())

    def apply(self, scores: Tensor) -> Tensor:
        """Return the scores in standard deviations from the mean, 0 in a column of equal scores."""
        mean, deviation = (torch.from_numpy(values).to(scores.device) for values in (self.mean, self.deviation))
        return torch.where(deviation > 0, (scores - mean) / deviation, 0)


class _AsyncCopy:
    """An asynchronous copy of a tensor to the CPU."""

    def __init__(self, values: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._values = values
        if values.device.type == "cuda":
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(values.device))

    def wait(self) -> Tensor:
        if self._event is not None:
            self._event.synchronize()
        return self._values.cpu()
