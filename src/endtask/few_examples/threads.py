"""Threads that share out whole runs, where torch would share out each of their many small operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

import torch

Part = TypeVar("Part")
Made = TypeVar("Made")


def in_threads(make: Callable[[Part, Event], Made], parts: Sequence[Part]) -> Iterator[Made]:
    """What `make` makes of each part, in their order, by as many threads as torch has, each of them alone.

    Nothing waits for a neighbor inside a part, and what comes out cannot depend on the number of threads. The event is
    set when nobody waits for results any more, such as after an error; `make` may then end as it likes.

    >>> list(in_threads(lambda part, stop: abs(part), [-1, 2, -3]))
    [1, 2, 3]
    """
    threads, stop = torch.get_num_threads(), Event()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(lambda part: make(part, stop), parts)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # torch keeps the last number that any thread set for threads to come
