"""What was learned from which data, and what each objective of pre-training cost: a table for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endtask.reporting.curves import pretrain_rows
from endtask.reporting.run_folder import RunFolder


@dataclass(frozen=True)
class ObjectiveRow:
    """One part of training; figures only of objectives of pre-training, the weight only where it was learned."""

    part: str
    learns: str
    reads: str
    split: str
    labels: bool
    steps: int | None
    tokens: int | None
    matmul_flops: float | None
    weight: float | None


def objective_rows(run: RunFolder) -> list[ObjectiveRow]:
    """All parts of training in order; none for runs that are older than the record."""
    counts = run.counts("pretrain")
    weights = _last_weights(run)
    return [_row(use, counts.get("objectives", {}), weights) for use in counts.get("uses", [])]


def _row(use: dict[str, Any], counts: dict[str, dict[str, Any]], weights: dict[str, float]) -> ObjectiveRow:
    own = counts.get(use["part"], {})
    return ObjectiveRow(
        use["part"],
        use["learns"],
        use["reads"],
        use["split"],
        use["labels"],
        own.get("steps"),
        own.get("tokens"),
        own.get("matmul_flops"),
        weights.get(use["part"]),
    )


def _last_weights(run: RunFolder) -> dict[str, float]:
    weights: dict[str, float] = {}
    for row in pretrain_rows(run):
        weights |= {name.split("/", 1)[1]: value for name, value in row.items() if name.startswith("weight/")}
    return weights
