"""The API for errors: wrong rows, corrected labels, and the corrected rows as CSV."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

from endtask.errors import InputError
from endtask.reporting.corrections import correct, corrected_csv, read_corrections
from endtask.reporting.errors import ShownRow, error_groups, shown_rows
from endtask.reporting.prediction_rows import PredictionRows
from endtask.reporting.run_folder import RunFolder
from endtask.web.problems import PROBLEMS
from endtask.web.site import RunHere

router = APIRouter(prefix="/api", tags=["errors"], responses=PROBLEMS)
MOST_ROWS = 100
Label = Annotated[str, StringConstraints(max_length=1000)]


class NearRow(BaseModel):
    """A near train row by the model's vectors."""

    id: str
    label: str
    text: str
    similarity: float


class WrongRow(BaseModel):
    """A row that the mean of the seeds answers wrong; `corrected` is the label that a user gave it."""

    split: str
    id: str
    text: str
    label: str
    predicted: str
    confidence: float | None
    leaked: bool
    near: list[NearRow]
    corrected: str | float | None


class WrongRows(BaseModel):
    """The number of wrong rows with these labels, and some of them, the surest first."""

    count: int
    rows: list[WrongRow]


class Correction(BaseModel):
    """The right label of a row; null restores the given one."""

    model_config = ConfigDict(extra="forbid")

    split: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    id: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    label: Annotated[Label | FiniteFloat | None, Field(description="a label of the task, or a number")]


class CorrectedLabel(BaseModel):
    """A row with its corrected label."""

    split: str
    id: str
    label: str | float


class Corrections(BaseModel):
    """The rows whose labels users have corrected."""

    corrections: list[CorrectedLabel]


@router.get("/runs/{run}/errors")
def errors(
    run: str,
    folder: RunHere,
    label: Annotated[str, Query(max_length=1000, description="the true label; empty: any")] = "",
    predicted: Annotated[str, Query(max_length=1000, description="the prediction; empty: any")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 25,
) -> WrongRows:
    """Return rows that are answered wrong, by true and predicted label."""
    count, rows = wrong_rows(RunFolder(folder), label, predicted, limit)
    corrected_labels = read_corrections(folder)
    return WrongRows(count=count, rows=[_row(row, corrected_labels.get((row.split, row.id))) for row in rows])


@router.get("/runs/{run}/labels")
def labels(run: str, folder: RunHere) -> Corrections:
    """Return the labels that users have corrected."""
    found = read_corrections(folder)
    return Corrections(
        corrections=[CorrectedLabel(split=split, id=name, label=label) for (split, name), label in found.items()]
    )


@router.put("/runs/{run}/labels")
def correct_label(run: str, request: Correction, folder: RunHere) -> Corrections:
    """Store the right label of a row, or restore the given one."""
    found = correct(RunFolder(folder), request.split, request.id, request.label)
    return Corrections(corrections=[CorrectedLabel(**asdict(one)) for one in found])


@router.get(
    "/runs/{run}/corrected/{split}.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}, "description": "the rows of the split"}},
)
def corrected(run: str, split: str, folder: RunHere) -> Response:
    """Return the rows of a split as CSV with the corrected labels; the file can be trained on."""
    lines = corrected_csv(RunFolder(folder), split)
    head = next(lines)  # an unknown split is an error before the answer begins
    attachment = {"content-disposition": f'attachment; filename="{split}.csv"'}
    return StreamingResponse(chain([head], lines), media_type="text/csv; charset=utf-8", headers=attachment)


def wrong_rows(run: RunFolder, label: str, predicted: str, limit: int) -> tuple[int, list[ShownRow]]:
    """Return the number of wrong rows with a true and a predicted label, and some of them; empty means any."""
    rows = PredictionRows.find(run) if "evaluate" in run.manifests else None
    if rows is None:
        raise InputError("no table of predictions", path=run.path, hint=f"endtask run {run.path} --from evaluate")
    groups = error_groups(rows)
    members = [
        row
        for (truth, answer), found in groups.items()
        if (not label or truth == label) and (not predicted or answer == predicted)
        for row in found
    ]
    distinct = list(dict.fromkeys(members))
    found = shown_rows(run, rows, distinct[:limit])
    return len(distinct), [found[row] for row in distinct[:limit]]


def _row(row: ShownRow, corrected: str | float | None) -> WrongRow:
    return WrongRow(
        split=row.split,
        id=row.id,
        text="".join(text for text, _ in row.parts),
        label=row.label,
        predicted=row.predicted,
        confidence=row.confidence,
        leaked=row.leaked,
        near=[NearRow(**asdict(near)) for near in row.near],
        corrected=corrected,
    )
