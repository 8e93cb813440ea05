"""metrics.jsonl: the curves of a phase, one JSON object per logged step."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import torch

from endtask.files.atomic import write_text
from endtask.train.loop import StepRecord


class MetricsFile:
    """Averages losses between logged steps and appends rows; a resumed phase drops what it will write again."""

    def __init__(self, path: Path, *, start: int, every: int) -> None:
        self._path, self._every = path, every
        self._records: list[StepRecord] = []
        kept = [row for row in read_metrics(path) if row["step"] <= start]
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))

    def add(self, record: StepRecord, *, flush: bool) -> dict[str, float] | None:
        """Remember a step; at every N-th one, or if told to `flush`, return the row to write."""
        self._records.append(record)
        return None if record.step % self._every and not flush else self._average()

    def write(self, row: dict[str, float]) -> None:
        """Append a row: the means since the last one, or a dev score."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _average(self) -> dict[str, float]:
        """Means over the finite values since the last row; the device is asked once, for all of them together."""
        records, self._records = self._records, []
        row: dict[str, float] = {"step": records[-1].step, "learning_rate": records[-1].learning_rate}
        names = [(name, value) for record in records for name, value in _values(record).items()]
        read = torch.stack([value.float() for _, value in names])
        finite: dict[str, list[float]] = {}
        for (name, _), value, whole in zip(names, read.tolist(), read.isfinite().tolist(), strict=True):
            if whole:
                finite.setdefault(name, []).append(value)
        return row | {name: fmean(values) for name, values in sorted(finite.items())}


def _values(record: StepRecord) -> dict[str, torch.Tensor]:
    return {**record.losses, "grad_norm": record.grad_norm}


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The whole rows of a metrics file; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]
