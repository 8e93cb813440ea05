"""metrics.jsonl: the curves of a phase, one JSON object per logged step."""

from __future__ import annotations

import json
import math
from pathlib import Path

from endtask.errors import InputError
from endtask.files.atomic import write_text
from endtask.train.loop import StepRecord


class MetricsFile:
    """Averages losses between logged steps and appends them; a resumed phase drops what it will write again."""

    def __init__(self, path: Path, *, start: int, every: int) -> None:
        self._path, self._every = path, every
        self._records: list[StepRecord] = []
        kept = [row for row in read_metrics(path) if row["step"] <= start]
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))

    def add(self, record: StepRecord, *, flush: bool) -> dict[str, float] | None:
        """Remember a step; at every N-th one, or if told to `flush`, write and return a row."""
        self._records.append(record)
        if record.step % self._every and not flush:
            return None
        row = self._average()
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return row

    def write(self, row: dict[str, float]) -> None:
        """Append a row of another kind, such as a dev score."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _average(self) -> dict[str, float]:
        records, self._records = self._records, []
        row: dict[str, float] = {"step": records[-1].step, "learning_rate": records[-1].learning_rate}
        for name in sorted({name for record in records for name in record.losses}):
            values = [float(record.losses[name]) for record in records if name in record.losses]
            row[name] = sum(values) / len(values)
            if not math.isfinite(row[name]):
                raise InputError(
                    f"the loss {name} is not finite near step {records[-1].step}",
                    hint="lower the learning_rate of this stage",
                )
        return row


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The whole rows of a metrics file; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]
