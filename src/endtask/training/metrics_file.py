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
from endtask.io.parsing import parse_json
from endtask.processes import ALONE, Processes
from endtask.training.loop import StepRecord

Unlogged = dict[str, list[float]]
"""The finite values of the steps since the last row."""


@dataclass(frozen=True)
class _PendingRow:
    """A row whose values are on their way from the device; counts are those of its step."""

    step: int
    learning_rate: float
    names: list[str]
    values: Tensor  # (names + counts,) float32, on the CPU
    counts: list[str]
    arrived: torch.cuda.Event | None

    @property
    def has_arrived(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())  # type: ignore[no-untyped-call]

    def row(self, earlier: Unlogged) -> dict[str, float]:
        """Return the means over finite values, with those of `earlier` steps, and the counts."""
        if self.arrived is not None:
            self.arrived.synchronize()
        finite = {name: list(values) for name, values in earlier.items()}
        for name, value in zip(self.names, self.values.tolist(), strict=False):
            if math.isfinite(value):
                finite.setdefault(name, []).append(value)
        means = {name: fmean(values) for name, values in sorted(finite.items())}
        counts = dict(zip(self.counts, self.values[len(self.names) :].int().tolist(), strict=True))
        return {"step": self.step, "learning_rate": self.learning_rate} | means | counts


class MetricsFile:
    """Averages losses between logged steps and appends rows; drops the rows after step `start` of a resumed phase.

    Of several processes the first writes, and all get each row at the same step, since they decide by its counts.
    """

    def __init__(
        self,
        path: Path,
        *,
        start: int,
        every: int,
        processes: Processes = ALONE,
        unlogged: Unlogged | None = None,
    ) -> None:
        self._earlier = unlogged or {}
        self._path, self._every, self._processes = path, every, processes
        self._records: list[StepRecord] = []
        self._pending: deque[_PendingRow] = deque()
        if processes.is_first:
            stored = [row for row in read_metrics(path) if row["step"] <= start]
            write_text(path, "".join(json.dumps(row) + "\n" for row in stored))

    def add(
        self, record: StepRecord, *, flush: bool, counts: Mapping[str, Tensor] | None = None
    ) -> list[dict[str, float]]:
        """Add a step; every N-th completes a row with the `counts` of that moment. Return the rows that are ready.

        On a GPU rows are ready some steps later, since waiting for values would leave the GPU idle. With `flush` all
        rows are returned, and the last steps make a row.
        """
        self._records.append(record)
        if flush or record.step % self._every == 0:
            self._pending.append(_request(self._records, counts or {}))
            self._records = []
        return self.rows(waits=flush or self._processes.count > 1)

    def rows(self, *, waits: bool) -> list[dict[str, float]]:
        """Return the rows that are ready, or all pending rows."""
        rows = []
        while self._pending and (waits or self._pending[0].has_arrived):
            earlier, self._earlier = self._earlier, {}
            rows.append(self._pending.popleft().row(earlier))
        return rows

    def unlogged(self) -> Unlogged:
        """Return the values of the steps since the last row, which a checkpoint at this step has to contain."""
        assert not self._pending
        values = {name: list(earlier) for name, earlier in self._earlier.items()}
        for name, value in (item for record in self._records for item in _named_values(record)):
            if math.isfinite(value):
                values.setdefault(name, []).append(float(value))
        return values

    def write(self, row: dict[str, float]) -> None:
        """Append a row to the file."""
        if not self._processes.is_first:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _named_values(record: StepRecord) -> list[tuple[str, Tensor]]:
    return [*record.losses.items(), ("grad_norm", record.grad_norm)]


def _request(records: list[StepRecord], counts: Mapping[str, Tensor]) -> _PendingRow:
    """Start to copy the values of some steps to the CPU, in one transfer."""
    named = [item for record in records for item in _named_values(record)]
    values = torch.stack([value.float() for value in (*(value for _, value in named), *counts.values())])
    copied = values.to("cpu", non_blocking=values.is_cuda)  # only CUDA has an event for the arrival
    arrived = None
    if values.is_cuda:
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
    last = records[-1]
    return _PendingRow(last.step, last.learning_rate, [name for name, _ in named], copied, list(counts), arrived)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the complete rows of a metrics file, without a last line that a kill cut off."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [parse_json(line) for line in lines]
