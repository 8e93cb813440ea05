"""Training curves for TensorBoard, W&B, trackio or MLflow, by Accelerate's trackers; none by default.

An error in a tracker never stops training: metrics.jsonl always has the curves.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from endtask.errors import InputError, did_you_mean
from endtask.io.atomic import write_json
from endtask.io.nested import flatten
from endtask.io.parsing import read_json
from endtask.io.run_layout import TRACKERS
from endtask.progress import say

PROJECT = "endtask"
"""The project or experiment that holds the runs, unless the user's environment names another."""

LIBRARIES = {
    "tensorboard": "torch.utils.tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "mlflow": "mlflow",
}
"""The module that each tracker imports; the package to install has the tracker's name."""


class Trackers:
    """Open trackers; one that fails is named once on standard error and dropped.

    >>> with Trackers() as trackers:
    ...     trackers.log({"step": 1, "loss": 0.5})
    """

    def __init__(self) -> None:
        self._runs: dict[str, _TrackedRun] = {}

    def open(self, name: str, folder: Path, run_name: str, settings: Mapping[str, Any], phase: str) -> None:
        """Open a tracker."""
        with self._isolated(name):
            self._runs[name] = _TrackedRun(name, folder, run_name, settings, phase)

    def log(self, row: Mapping[str, float]) -> None:
        """Send a row of the curves, whose values belong to its `step`."""
        values = {name: float(value) for name, value in row.items() if name != "step"}
        for name, run in list(self._runs.items()):
            with self._isolated(name):
                run.log(int(row["step"]), values)

    def close(self, finished: bool = True) -> None:
        """Close all trackers; a second call does nothing."""
        for name in list(self._runs):
            run = self._runs.pop(name)
            with self._isolated(name):
                run.close(finished)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close(finished=error is None)

    @contextmanager
    def _isolated(self, name: str) -> Iterator[None]:
        """Drop a tracker that raises an error, and redirect its output to standard error."""
        try:
            with redirect_stdout(sys.stderr):
                yield
        except Exception as error:  # a tracker's code, network and server may raise anything
            self._runs.pop(name, None)
            say(f"{name} gets no more of this phase's curves, training goes on: {_first_line(error)}")


def open_trackers(names: Sequence[str], folder: Path, settings: Mapping[str, Any], phase: str) -> Trackers:
    """Open trackers for a phase of the run in `folder`; they show `settings` with the curves.

    Each tracker has one run for all phases: the name of a curve begins with its phase, and the steps of a phase count
    on from those of the phases before. Trackers store their files in `folder`/trackers. A phase that resumes or rolls
    back sends no step of a curve twice.
    """
    check_trackers(names)
    trackers, files = Trackers(), folder / TRACKERS
    if names:
        files.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(names):
        trackers.open(name, files, folder.resolve().name, settings, phase.replace(" ", "-"))
    return trackers


def check_trackers(names: Iterable[str]) -> None:
    """Raise `InputError` with the install command for a tracker whose libraries cannot be imported."""
    for name in names:
        if name not in LIBRARIES:
            raise InputError(f"no tracker is called {name!r}", key="report_to", hint=did_you_mean(name, LIBRARIES))
        for library, package in ((LIBRARIES[name], name), ("accelerate.tracking", "accelerate")):
            try:
                import_module(library)
            except Exception as error:  # incompatible versions of libraries raise other errors than ImportError
                message = f"{name} needs the package `{package}`, which cannot be imported: {_first_line(error)}"
                install = "'endtask[trackers]'" if package == "accelerate" else package
                raise InputError(message, key="report_to", hint=f"pip install {install}") from None


class _TrackedRun:
    """One of Accelerate's trackers, with a JSON file by which the phases of a run, and resumed ones, share a run.

    The file has the id of the run, the last step sent of each curve, and the step before the first of each phase. It is
    written before a row is sent: a kill between the two loses a point instead of sending it twice.
    """

    def __init__(self, name: str, folder: Path, run_name: str, settings: Mapping[str, Any], phase: str) -> None:
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        PartialState()  # Accelerate's logging requires it
        self._file = folder / f"{name}.json"
        self._phase = phase
        self._state: dict[str, Any] = {"id": None, "has_settings": False, "sent": {}, "first_steps": {}}
        if self._file.exists():
            self._state = read_json(self._file)
        elif name != "mlflow":
            # Stored before the run exists: a kill between the two must not lead to a second run.
            self._store(id=secrets.token_hex(8))
        options = _options(name, folder, run_name, self._state["id"])
        self._tracker: Any = LOGGER_TYPE_TO_CLASS[name](**options)
        self._tracker.start()
        if self._state["id"] is None:
            self._store(id=self._tracker.tracker.info.run_id)
        if not self._state["has_settings"]:
            self._tracker.store_init_configuration(_parameters(settings))
            self._store(has_settings=True)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values whose curves have not reached this step."""
        sent, first_steps = self._state["sent"], self._state["first_steps"]
        step += first_steps.setdefault(self._phase, max(sent.values(), default=0))
        curves = {f"{self._phase}/{name}": value for name, value in values.items()}
        unsent = {name: value for name, value in curves.items() if step > sent.get(name, -1)}
        if unsent:
            self._store(sent=sent | dict.fromkeys(unsent, step))
            self._tracker.log(unsent, step=step)

    def close(self, finished: bool) -> None:
        """Send buffered rows, and mark the run as finished or failed if the tracker has such a mark."""
        if finished or self._tracker.name not in ("wandb", "mlflow"):
            self._tracker.finish()
        elif self._tracker.name == "wandb":
            self._tracker.tracker.finish(exit_code=1)
        else:
            import_module("mlflow").end_run("FAILED")

    def _store(self, **changes: Any) -> None:
        self._state |= changes
        write_json(self._file, self._state)


def _options(name: str, folder: Path, run_name: str, run_id: str | None) -> dict[str, Any]:
    """Return the arguments of Accelerate's tracker; environment variables of the user take precedence."""
    options: dict[str, dict[str, Any]] = {
        "tensorboard": {"run_name": "tensorboard", "logging_dir": folder},
        "wandb": {
            "run_name": os.environ.get("WANDB_PROJECT", PROJECT),
            "id": run_id,
            "resume": "allow",
            "name": run_name,
            "dir": os.environ.get("WANDB_DIR", str(folder)),
            # W&B would also send code, git state and printed lines.
            "settings": {"console": "off", "disable_code": True, "disable_git": True},
        },
        # trackio finds a run by its name, which must be unique.
        "trackio": {"run_name": PROJECT, "name": f"{run_name}-{run_id}", "resume": "allow"},
        "mlflow": {"experiment_name": PROJECT, "run_id": run_id, "run_name": run_name},
    }
    return options[name]


def _parameters(settings: Mapping[str, Any]) -> dict[str, bool | str | float]:
    """Return settings by dotted key, with values other than numbers, booleans and strings as strings.

    >>> _parameters({"seed": 0, "pretrain": {"rates": [1, 2], "name": None}})
    {'seed': 0, 'pretrain.rates': '[1, 2]', 'pretrain.name': 'None'}
    """
    flat = flatten(settings).items()
    return {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in flat}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
