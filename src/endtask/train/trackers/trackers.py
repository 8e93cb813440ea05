"""The trackers of a phase, opened by name; whatever goes wrong in one of them, training goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from endtask.errors import InputError, did_you_mean
from endtask.progress import say
from endtask.train.trackers.base import TrackedRun, Tracker
from endtask.train.trackers.mlflow import MLflow
from endtask.train.trackers.tensorboard import TensorBoard
from endtask.train.trackers.trackio import Trackio
from endtask.train.trackers.wandb import WeightsAndBiases


class TrackerKind(Protocol):
    """A class of trackers and the library it needs."""

    library: str
    """The module to import, inside the class only: nobody pays for what was not asked for."""
    package: str
    """What to install for it."""

    def __call__(self, run: TrackedRun, /) -> Tracker: ...


TRACKERS: dict[str, TrackerKind] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
    "mlflow": MLflow,
}


class Trackers:
    """Open trackers; one that fails is named once on standard error and dropped.

    >>> with Trackers() as trackers:
    ...     trackers.log({"step": 1, "loss": 0.5})
    """

    def __init__(self) -> None:
        self._open: dict[str, Tracker] = {}

    def add(self, name: str, make: Callable[[], Tracker]) -> None:
        """Open one more."""
        with self._apart(name):
            self._open[name] = make()

    def log(self, row: Mapping[str, float]) -> None:
        """Send a row of the curves, whose `step` says where it belongs."""
        values = {name: float(value) for name, value in row.items() if name != "step"}
        for name, tracker in list(self._open.items()):
            with self._apart(name):
                tracker.log(int(row["step"]), values)

    def close(self, finished: bool = True) -> None:
        """Close all; a second time does nothing."""
        for name in list(self._open):
            tracker = self._open.pop(name)
            with self._apart(name):
                tracker.close(finished)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close(finished=error is None)

    @contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        """Keep a tracker's errors and chatter away from training and from a command's result."""
        try:
            with redirect_stdout(sys.stderr):
                yield
        except Exception as error:
            # Their code, network and server: there is no list of what may come, and hours of training and the
            # curves in metrics.jsonl must not hang on it.
            self._open.pop(name, None)
            say(f"{name} gets no more of this phase's curves, training goes on: {_first_line(error)}")


def open_trackers(names: Sequence[str], folder: Path, run_name: str, settings: Mapping[str, Any]) -> Trackers:
    """Open these trackers for the phase that works in `folder`; `settings` are shown beside the curves.

    Trackers keep their files in `folder`/trackers. A phase that goes on after a kill, or back to a checkpoint, goes on
    in the same run of each tool, without points twice: of steps that are done again TensorBoard shows the new points,
    the others those they were sent first.
    """
    find_libraries(names)
    trackers = Trackers()
    if names:
        run = TrackedRun(folder / "trackers", run_name, settings)
        run.folder.mkdir(parents=True, exist_ok=True)
        for name in dict.fromkeys(names):
            trackers.add(name, partial(TRACKERS[name], run))
    return trackers


def find_libraries(names: Iterable[str]) -> None:
    """Refuse, with the install line, a tracker whose library cannot be imported; better at once than after hours."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"no tracker is called {name!r}", key="report_to", hint=did_you_mean(name, TRACKERS))
        kind = TRACKERS[name]
        try:
            import_module(kind.library)
        except (
            Exception
        ) as error:  # a library that does not fit its neighbours fails with anything, not ImportError only
            raise InputError(
                f"{name} needs the package `{kind.package}`, which cannot be imported: {_first_line(error)}",
                key="report_to",
                hint=f"pip install {kind.package}",
            ) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
