"""The metric that a task's type chooses."""

from __future__ import annotations

from typing import ClassVar

from endtask.evaluation.metrics.base import Form, Metric, metrics


@metrics.register("auto")
class Auto(Metric):
    """The default metric of the task's type, which `measure_of` looks up."""

    forms: ClassVar[tuple[Form, ...]] = ()
