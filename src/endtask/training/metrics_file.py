"""metrics.jsonl: the curves of a phase, one JSON object per logged step."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from endtask.io.atomic import write_text
from endtask.training.loop import StepRecord


@dataclass(frozen=True)
class _PendingRow:
    """Values on their way from the device: for a row, and as they stood at its step."""

    step: int
    learning_rate: float
    names: list[str]
    values: Tensor  # (names and counts,) float32, on the CPU
    counts: list[str]
    arrived: torch.cuda.Event | None

    @property
    def is_here(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())  # type: ignore[no-untyped-call]

    def row(self) -> dict[str, float]:
        """Means over the finite values, and the counts."""
        if self.arrived is not None:
            self.arrived.synchronize()
        finite: dict[str, list[float]] = {}
        for name, value in zip(self.names, self.values.tolist(), strict=False):
            if math.isfinite(value):
                finite.setdefault(name, []).append(value)
        means = {name: fmean(values) for name, values in sorted(finite.items())}
        counts = dict(zip(self.counts, self.values[len(self.names) :].int().tolist(), strict=True))
        return {"step": self.step, "learning_rate": self.learning_rate} | means | counts


class MetricsFile:
    """Averages losses between logged steps and appends rows; a resumed phase drops what it will write again."""

    def __init__(self, path: Path, *, start: int, every: int) -> None:
        self._path, self._every = path, every
        self._records: list[StepRecord] = []
        self._pending: deque[_PendingRow] = deque()
        stored = [row for row in read_metrics(path) if row["step"] <= start]
        write_text(path, "".join(json.dumps(row) + "\n" for row in stored))

    def add(
        self, record: StepRecord, *, flush: bool, counts: Mapping[str, Tensor] | None = None
    ) -> list[dict[str, float]]:
        """Remember a step, every N-th for a row with the `counts` of that moment; returns the rows that can be written.

        On a GPU they come some steps late, as it gets there: waiting for it would leave it idle until it is told more.
        With `flush` all come at once, a row of the last steps among them.
        """
        self._records.append(record)
        if flush or record.step % self._every == 0:
            self._pending.append(_request(self._records, counts or {}))
            self._records = []
        rows = []
        while self._pending and (flush or self._pending[0].is_here):
            rows.append(self._pending.popleft().row())
        return rows

    def write(self, row: dict[str, float]) -> None:
        """Append a row: the means since the last one, or a dev score."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _request(records: list[StepRecord], counts: Mapping[str, Tensor]) -> _PendingRow:
    """Have the device send the values of some steps, all of them together."""
    named = [(name, value) for record in records for name, value in _values(record).items()]
    values = torch.stack([value.float() for value in (*(value for _, value in named), *counts.values())])
    sent = values.to("cpu", non_blocking=values.is_cuda)  # elsewhere nothing tells when they have come
    arrived = None
    if values.is_cuda:
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
    last = records[-1]
    return _PendingRow(last.step, last.learning_rate, [name for name, _ in named], sent, list(counts), arrived)


def _values(record: StepRecord) -> dict[str, Tensor]:
    return {**record.losses, "grad_norm": record.grad_norm}


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The whole rows of a metrics file; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]
