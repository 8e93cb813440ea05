"""Labels that a user corrects in the rows of a run: `corrections.json` in its folder, and the corrected rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.errors import InputError, did_you_mean
from endtask.io.atomic import write_json
from endtask.io.parsing import ParseError, parse_json
from endtask.registry import task_types
from endtask.reporting.run_folder import RunFolder

CORRECTIONS = "corrections.json"
FORMAT = 1
_COLUMNS = ("id", "text", "text_pair", "label")
Answer = str | float


@dataclass(frozen=True)
class Correction:
    """A row of a split and the label that it should have."""

    split: str
    id: str
    label: Answer


def read_corrections(folder: Path) -> dict[tuple[str, str], Answer]:
    """Return the corrected labels by split and id; empty without corrections."""
    file = folder / CORRECTIONS
    if not file.exists():
        return {}
    try:
        rows = parse_json(file.read_text(encoding="utf-8"))["rows"]
        return {(row["split"], row["id"]): row["label"] for row in rows}
    except (OSError, UnicodeDecodeError, ParseError, KeyError, TypeError):
        raise InputError("no list of corrected labels", path=file, hint="delete it to begin anew") from None


def correct(run: RunFolder, split: str, row_id: str, label: Answer | None) -> list[Correction]:
    """Store the right label of a row, or forget it with None, and return all corrections."""
    corrections = read_corrections(run.path)
    if not any(row["id"] == row_id for row in run.examples(_known_split(run, split))):
        raise InputError(f"no row {row_id!r} in {split}", path=run.path)
    if label is None:
        corrections.pop((split, row_id), None)
    else:
        corrections[split, row_id] = _checked_label(run, label)
    found = [Correction(*key, answer) for key, answer in corrections.items()]
    rows = [{"split": one.split, "id": one.id, "label": one.label} for one in found]
    write_json(run.path / CORRECTIONS, {"format": FORMAT, "rows": rows})
    return found


def can_correct(run: RunFolder) -> bool:
    """Return whether rows have one label, a class or a number, which a list of corrections can hold."""
    return run.audit is not None and _form(run) in ("classes", "numbers")


def corrected_csv(run: RunFolder, split: str) -> Iterator[str]:
    """Yield the rows of a split as CSV, a row at a time, with the corrected labels."""
    if not can_correct(run):
        raise InputError("rows with several labels have no column for them in a CSV file", path=run.path)
    corrections = read_corrections(run.path)
    rows = run.examples(_known_split(run, split))
    first = next(rows, None)
    columns = [name for name in _COLUMNS if name != "text_pair" or (first and first.get(name) is not None)]
    yield _csv_line(columns)
    while first is not None:
        values = first | {"label": corrections.get((split, first["id"]), first["label"])}
        yield _csv_line([values.get(name) for name in columns])
        first = next(rows, None)


def splits_of(run: RunFolder) -> list[str]:
    """Return the splits of the run's task."""
    return list(run.audit["splits"]) if run.audit is not None else []


def _known_split(run: RunFolder, split: str) -> str:
    known = splits_of(run)
    if split not in known:
        raise InputError(f"no split {split!r}", path=run.path, hint=did_you_mean(split, known) if known else None)
    return split


def _form(run: RunFolder) -> str:
    assert run.audit is not None
    return str(task_types.get(run.audit["type"]).form)


def _checked_label(run: RunFolder, label: Answer) -> Answer:
    if not can_correct(run):
        raise InputError("labels of this type of task are corrected in their file", path=run.path)
    assert run.audit is not None
    if _form(run) == "numbers":
        if isinstance(label, str):
            raise InputError(f"{label!r} is no number", path=run.path)
        return float(label)
    if label not in run.audit["labels"]:
        raise InputError(f"no label {label!r}", path=run.path, hint=did_you_mean(str(label), run.audit["labels"]))
    return label


def _csv_line(values: list[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
