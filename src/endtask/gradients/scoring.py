"""Scores of many batches: batches are made ready ahead, and results travel while the device works on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.models.place import Place

_BATCHES_AHEAD = 4


class Pinned(Protocol):
    """What can lie in memory that a GPU copies from: a batch, or several read together."""

    def pin(self) -> Self: ...


Ready = TypeVar("Ready", bound=Pinned)


def score_batches(batches: Iterable[Ready], score: Callable[[Ready], Tensor], place: Place) -> Iterator[Tensor]:
    """What `score` gives for each batch, in order, on the CPU; a GPU is never waited for while it has nothing to do.

    >>> place = Place(torch.device("cpu"))
    >>> list(score_batches(iter(["a", "bc"]), lambda batch: torch.tensor([len(batch)]), place))
    [tensor([1]), tensor([2])]
    """
    before: _Travelling | None = None
    for batch in made_ahead(batches, place):
        now = _Travelling(score(batch))
        if before is not None:
            yield before.wait()
        before = now
    if before is not None:
        yield before.wait()


def made_ahead(batches: Iterable[Ready], place: Place) -> Iterator[Ready]:
    """The batches, made by a thread of its own, in memory that the device can copy from."""
    source = iter(batches)

    def make() -> Ready | None:
        batch = next(source, None)
        return batch.pin() if batch is not None and place.pins_memory else batch

    pool = ThreadPoolExecutor(1, thread_name_prefix="candidates")
    try:
        waiting: deque[Future[Ready | None]] = deque(pool.submit(make) for _ in range(_BATCHES_AHEAD))
        while (batch := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(make))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


def like_lengths(lengths: NDArray[np.int64], most_tokens: int) -> Iterator[NDArray[np.int64]]:
    """The places of texts of like length, batch by batch, each of about so many tokens.

    >>> [places.tolist() for places in like_lengths(np.array([9, 2, 8, 3]), 10)]
    [[1, 3], [2], [0]]
    """
    rising = np.argsort(lengths, kind="stable")
    ends = np.cumsum(lengths[rising]) // most_tokens
    yield from np.split(rising, np.flatnonzero(np.diff(ends)) + 1)


class _Travelling:
    """A tensor on its way to the CPU."""

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
