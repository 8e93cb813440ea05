"""Signals that end a command: training saves a checkpoint first, and the command leaves with a line within seconds.

The command line handles Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 (Slurm's warning before its limit) alike. A program that
imports endtask keeps its own handlers.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
SECONDS_TO_LEAVE = 8.0
"""After which the process ends even in the middle of a long step; everything on disk is whole at any moment."""
_SECONDS_OF_ONE_REQUEST = 1.0
"""A terminal or a scheduler signals all processes, and so does torchrun, whose processes then get each signal twice."""


class Stopped(KeyboardInterrupt):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Requests:
    """The first signal that arrived, when it arrived, and whether the main thread looks for it by itself."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.arrived = 0.0
        self.deferred = False


_requests = _Requests()


@contextmanager
def stop_signals(arguments: Sequence[str]) -> Iterator[None]:
    """Raise `Stopped` for a signal within the block; end the process with a line if nothing reacts in time.

    A signal that this process ignores, such as SIGHUP under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}
    for number in _handled():
        before[number] = signal.signal(number, lambda number, frame: _handle(number, arguments))
    _requests.deferred = False
    try:
        with _watchdog(arguments):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _requests.number = None


def _handled() -> Iterator[int]:
    numbers = (getattr(signal, name, None) for name in _NAMES)
    yield from (number for number in numbers if number is not None and signal.getsignal(number) != signal.SIG_IGN)


def leave_on_signals(arguments: Sequence[str]) -> None:
    """End the process at once for a signal, until `stop_signals` takes over: nothing has been started yet."""
    for number in _handled():
        signal.signal(number, lambda number, frame: leave(number, stopped_message(number, arguments)))


def ignore_stop_signals() -> None:
    """Ignore the signals in a worker process, which ends with its parent: a scheduler signals both at once."""
    for name in _NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _handle(number: int, arguments: Sequence[str]) -> None:
    if _requests.number is None:
        _requests.number, _requests.arrived = number, time.monotonic()
        _drop_dead_terminal()
        if not _requests.deferred:
            raise Stopped(number)
    elif number == signal.SIGINT and time.monotonic() - _requests.arrived > _SECONDS_OF_ONE_REQUEST:
        leave(number, stopped_message(_requests.number, arguments))  # someone at the keyboard will not wait


@contextmanager
def _watchdog(arguments: Sequence[str]) -> Iterator[None]:
    """End the process some seconds after a signal, also if compiled code keeps Python's handlers from running."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    ended = threading.Event()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        handled = set(_handled())
        while (number := os.read(reading, 1)[0]) not in handled:
            if number == 0:
                return
        if not ended.wait(SECONDS_TO_LEAVE):
            leave(number, stopped_message(number, arguments))

    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        ended.set()
        os.write(writing, b"\0")
        thread.join()
        os.close(reading)
        os.close(writing)


def leave(number: int, message: str) -> NoReturn:
    """End the process at once, with a line and the exit code of a shell for this signal, such as 143 for SIGTERM."""
    with suppress(OSError):
        os.write(2, f"endtask: {message}\n".encode())
    os._exit(exit_code(number))


def exit_code(number: int) -> int:
    """Return the exit code of a command that a signal ended, as shells give it.

    >>> exit_code(signal.SIGINT), exit_code(signal.SIGTERM)
    (130, 143)
    """
    return 128 + number


def _drop_dead_terminal() -> None:
    """Send the output to nowhere if its terminal has gone, so that a bar that cannot be drawn is no error."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Only note a signal within the block, which calls `requested_signal` often; raise `Stopped` at its end at last."""
    before, _requests.deferred = _requests.deferred, threading.current_thread() is threading.main_thread()
    try:
        yield
    finally:
        _requests.deferred = before
    if _requests.number is not None and not before:
        stop()


def requested_signal() -> int | None:
    """Return the signal that arrived; None without one."""
    return _requests.number


def stop(number: int = signal.SIGTERM) -> NoReturn:
    """Raise `Stopped` for the signal that arrived, or for one that another process got."""
    if _requests.number is None:
        _requests.number = number
    raise Stopped(_requests.number)


def stopped_message(number: int, arguments: Sequence[str]) -> str:
    """Return the line of a stopped command: the signal, unless it is Ctrl-C, and how to go on.

    >>> stopped_message(signal.SIGTERM, ["run", "runs/a"])
    'stopped by SIGTERM; the same command resumes from here'
    """
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    again = "the same command without --from" if "--from" in arguments else "the same command"
    return f"stopped{by}; {again} resumes from here"
