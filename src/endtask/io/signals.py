"""Signals that end a command: training saves a checkpoint first, and the command leaves with a line within seconds.

The command line handles Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 (Slurm's warning before its limit) alike. A library that
imports endtask keeps its own handlers.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
SECONDS_TO_LEAVE = 8.0
"""After which the process ends even in the middle of a long step; everything on disk is whole at any moment."""


class Stopped(KeyboardInterrupt):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code of a shell for this signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class _Requests:
    """The first signal that arrived, and whether the main thread looks for it by itself."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.deferred = False


_requests = _Requests()


@contextmanager
def stop_signals(arguments: Sequence[str]) -> Iterator[None]:
    """Raise `Stopped` for a signal within the block; end the process with a line if nothing reacts in time.

    A signal that this process ignores, such as SIGHUP under nohup, stays ignored.
    """
    before: dict[int, Any] = {}
    with suppress(ValueError):  # not in the main thread
        for number in _handled():
            before[number] = signal.signal(number, lambda number, frame: _handle(number, arguments))
    _requests.number, _requests.deferred = None, False
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handled() -> Iterator[int]:
    numbers = (getattr(signal, name, None) for name in _NAMES)
    yield from (number for number in numbers if number is not None and signal.getsignal(number) != signal.SIG_IGN)


def ignore_stop_signals() -> None:
    """Ignore the signals in a worker process, which ends with its parent: a scheduler signals both at once."""
    for name in _NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _handle(number: int, arguments: Sequence[str]) -> None:
    is_first = _requests.number is None
    if is_first:
        _requests.number = number
        timer = threading.Timer(SECONDS_TO_LEAVE, _leave, (number, stopped_message(number, arguments)))
        timer.daemon = True
        timer.start()
        _drop_dead_terminal()
    if not (is_first and _requests.deferred):
        raise Stopped(number)


def _leave(number: int, message: str) -> None:
    with suppress(OSError):
        os.write(2, f"endtask: {message}\n".encode())
    os._exit(128 + number)


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
    """Only note the first signal within the block, which calls `stop_requested` often; the second one raises."""
    before, _requests.deferred = _requests.deferred, threading.current_thread() is threading.main_thread()
    try:
        yield
    finally:
        _requests.deferred = before


def stop_requested() -> bool:
    """Return whether a signal arrived."""
    return _requests.number is not None


def stop() -> NoReturn:
    """Raise `Stopped` for the signal that arrived."""
    raise Stopped(signal.SIGINT if _requests.number is None else _requests.number)


def stopped_message(number: int, arguments: Sequence[str]) -> str:
    """Return the line of a stopped command: the signal, unless it is Ctrl-C, and how to go on.

    >>> stopped_message(signal.SIGTERM, ["run", "runs/a"])
    'stopped by SIGTERM; the same command resumes from here'
    """
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    again = "the same command without --from" if "--from" in arguments else "the same command"
    return f"stopped{by}; {again} resumes from here"
