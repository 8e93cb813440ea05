"""What the page of errors shows: the confusion matrix, the rows of an opened cell, and labels to check."""

from __future__ import annotations

from typing import Any

from endtask.reporting.corrections import can_correct, read_corrections, splits_of
from endtask.reporting.errors import error_groups, label_checks
from endtask.reporting.page import confusion_of
from endtask.reporting.prediction_rows import PredictionRows
from endtask.reporting.run_folder import RunFolder
from endtask.web.correcting import wrong_rows

MOST_ROWS, MOST_CHECKS, MOST_LABELS, _MOST_GROUPS = 50, 25, 20, 40
_SHADES = 9


def errors_context(run: RunFolder, label: str, predicted: str) -> dict[str, Any]:
    """Return the variables of the template for an evaluated run."""
    rows = PredictionRows.find(run)
    assert rows is not None
    count, opened = wrong_rows(run, label, predicted, MOST_ROWS)
    groups = error_groups(rows)
    confusion = confusion_of(run)
    labels = list(run.audit["labels"]) if run.audit else []
    return {
        "errors": opened,
        "count": count,
        "wrong": len({row for members in groups.values() for row in members}),
        "of": len(rows.scored),
        "groups": [(key, len(members)) for key, members in list(groups.items())[:_MOST_GROUPS]],
        "is_open": bool(label or predicted),
        "opened": (label, predicted),
        "confusion": confusion if 0 < len(confusion.labels) <= MOST_LABELS else None,
        "shade": lambda truth, answer: _shade(confusion.at(truth, answer), confusion.total(truth)),
        "form": rows.form,
        "checks": label_checks(run, rows, rows.candidates()[:MOST_CHECKS]),
        "choices": labels if rows.form == "classes" else [],
        "can_correct": can_correct(run),
        "corrections": read_corrections(run.path),
        "splits": splits_of(run),
    }


def _shade(number: int, total: int) -> int:
    """Return the shade of a cell, 0 to 9, by its share of the row."""
    return round(_SHADES * number / total) if total else 0
