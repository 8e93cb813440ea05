"""MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from endtask.train.trackers.base import PROJECT, Memory, TrackedRun

_BATCH = 100  # parameters that MLflow takes in one request
_LONGEST = 500  # characters of a parameter's value that every MLflow server takes


class MLflow:
    """Sends curves and settings to the tracking server or folder that MLFLOW_TRACKING_URI names, else MLflow's own.

    By a client of our own, as MLflow's "active run" is one for the whole process and may be the user's.
    """

    library = "mlflow"
    package = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        self._client = import_module(self.library).MlflowClient()
        self._entities = import_module("mlflow.entities")
        self._memory = Memory(run.folder / "mlflow.json")
        if self._memory.id is None:
            self._id = self._memory.keep_id(self._create(run.name))
            self._send_settings(run.settings)
        else:
            self._id = self._memory.id
            self._client.update_run(self._id, status="RUNNING")

    def log(self, step: int, values: dict[str, float]) -> None:
        if fresh := self._memory.unsent(step, values):
            now = int(time.time() * 1000)
            metrics = [self._entities.Metric(name, value, now, step) for name, value in fresh.items()]
            self._client.log_batch(self._id, metrics=metrics)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._id, status="FINISHED" if finished else "FAILED")

    def _create(self, run_name: str) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(name)
        created: str = self._client.create_run(experiment_id, run_name=run_name).info.run_id
        return created

    def _send_settings(self, settings: Mapping[str, Any]) -> None:
        params = [self._entities.Param(key, str(value)[:_LONGEST]) for key, value in _flat(settings)]
        for start in range(0, len(params), _BATCH):
            self._client.log_batch(self._id, params=params[start : start + _BATCH])


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys: MLflow compares runs by flat parameters."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
