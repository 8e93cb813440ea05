"""Apply a function in worker processes, in order and with a bounded number of items in memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

from endtask.io.processes import exit_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

_WAITING = 3
"""Items for each process: one that it works on, and others ready."""
_DONE_HERE = 4
"""Items; fewer are done sooner than processes start."""


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result]:
    """Yield the result of each item in order.

    The first items are done in this process, so that a small file, or the start of a file, needs no others.

    >>> list(ordered_map(abs, [-1, 2, -3], processes=1))
    [1, 2, 3]
    """
    waiting = iter(items)
    yield from map(function, islice(waiting, _DONE_HERE if processes > 1 else None))
    ready = list(islice(waiting, 1))
    if not ready:
        return
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(processes, initializer=exit_with_parent, initargs=(os.getpid(),))
    try:
        futures: deque[Future[Result]] = deque(pool.submit(function, item) for item in ready)
        while futures:
            more = islice(waiting, _WAITING * processes - len(futures))
            futures.extend(pool.submit(function, item) for item in more)
            yield futures.popleft().result()
    finally:
        pool.shutdown(kill_workers=True)
