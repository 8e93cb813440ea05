"""Times training steps without disturbing them."""

from __future__ import annotations

import time

import torch


class StepClock:
    """Told of the end of every step; waits for the device only where the timed steps begin and end.

    In between, events on the device mark the ends of steps, which costs it nothing.

    >>> clock = StepClock(torch.device("cpu"), warmup=1, steps=2)
    >>> for _ in range(3):
    ...     clock.tick()
    >>> sorted(clock.statistics())
    ['seconds', 'step_milliseconds', 'steps', 'warmup']
    """

    def __init__(self, device: torch.device, warmup: int, steps: int) -> None:
        if warmup < 1 or steps < 1:
            raise ValueError("at least one step to warm up and one to time")
        self._on_gpu = device.type == "cuda"
        self._warmup, self._steps = warmup, steps
        self._ticks = 0
        self._start = self._end = 0.0
        self._events: list[torch.cuda.Event] = []
        self._times: list[float] = []

    @property
    def is_timing(self) -> bool:
        """Whether the step that goes on now is a timed one."""
        return self._warmup <= self._ticks < self._warmup + self._steps

    @property
    def total(self) -> int:
        """Steps to train in all."""
        return self._warmup + self._steps

    def tick(self) -> None:
        """A step has ended, or all its work is on its way to the device."""
        self._ticks += 1
        if self._ticks == self._warmup:
            self._start = self._now()
        elif self._ticks == self.total:
            self._end = self._now()
        if self._ticks >= self._warmup:
            self._mark()

    def statistics(self) -> dict[str, float | int | list[float]]:
        """Seconds of all timed steps, and milliseconds of each."""
        if self._ticks < self.total:
            raise RuntimeError(f"{self._ticks} of {self.total} steps were done")
        if self._on_gpu:
            each = [before.elapsed_time(after) for before, after in zip(self._events, self._events[1:], strict=False)]
        else:
            each = [1000 * (after - before) for before, after in zip(self._times, self._times[1:], strict=False)]
        return {
            "warmup": self._warmup,
            "steps": self._steps,
            "seconds": round(self._end - self._start, 6),
            "step_milliseconds": [round(milliseconds, 3) for milliseconds in each],
        }

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())
