"""The API for why a model answers as it does: the nearest and the most influential training texts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from endtask.errors import InputError
from endtask.records import Example
from endtask.reporting.errors import answer_text
from endtask.reporting.format import shorten
from endtask.reporting.results import stored_task
from endtask.reporting.run_folder import RunFolder
from endtask.serving.predictor import Predictor, Text
from endtask.serving.training_texts import (
    BATCH,
    NearText,
    TrainingEvidence,
    TrainingTexts,
    can_explain,
    last_states,
    state_rows,
)
from endtask.web.batching import Batcher
from endtask.web.predictions import ShortText, Words, checked_text
from endtask.web.problems import PROBLEMS
from endtask.web.site import RunHere, SiteHere

router = APIRouter(prefix="/api", tags=["predict"], responses=PROBLEMS)
MOST_TEXTS = 5_000
"""Training texts that a text is compared with; of more, as many spread evenly."""
READING_SECONDS = 30.0
_CHARACTERS = 400


class ToExplain(BaseModel):
    """A text (for a model of pairs, two), and how many training texts to list."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "a text to classify"}]})

    text: ShortText | Words
    top: Annotated[int, Field(ge=1, le=20)] = 3


class TrainingText(BaseModel):
    """A train row; `value` is the cosine similarity of vectors, or the influence on the answer."""

    id: str
    label: str
    text: str
    value: float


class Explained(BaseModel):
    """The prediction for a text and the training texts behind it.

    `supporting` raise the predicted answer's logit in one gradient step of the last layer, `opposing` lower it.
    """

    prediction: dict[str, Any]
    nearest: list[TrainingText]
    supporting: list[TrainingText]
    opposing: list[TrainingText]
    compared: int
    train_rows: int
    milliseconds: float


class KnownTexts:
    """The train rows that a model compares texts with, and what its last layer reads of them."""

    def __init__(self, rows: Sequence[Example], count: int, texts: TrainingTexts) -> None:
        self.rows, self.count, self.texts = rows, count, texts


@router.post("/runs/{run}/explain")
async def explain(run: str, request: ToExplain, folder: RunHere, site: SiteHere) -> Explained:
    """Predict for a text and name the training texts nearest to it and most influential for the answer."""
    start = time.perf_counter()
    batcher = await site.models.batcher(folder)
    text = checked_text(batcher.predictor, 1, request.text)
    if not can_explain(batcher.predictor):
        raise InputError("the training texts behind taggers and ONNX models are not known", path=folder)
    known = await _known_soon(batcher, folder)
    prediction, evidence = await batcher.compute(_evidence, batcher.predictor, known.texts, text, request.top)
    form = batcher.predictor.task_type.form

    def rows(near: Sequence[NearText]) -> list[TrainingText]:
        return [_training_text(known.rows[one.index], form, one.value) for one in near]

    return Explained(
        prediction=asdict(prediction),
        nearest=rows(evidence.nearest),
        supporting=rows(evidence.supporting),
        opposing=rows(evidence.opposing),
        compared=len(known.rows),
        train_rows=known.count,
        milliseconds=round(1000 * (time.perf_counter() - start), 2),
    )


def _evidence(predictor: Predictor, texts: TrainingTexts, text: Text, top: int) -> tuple[Any, TrainingEvidence]:
    states, logits = last_states(predictor, [text])
    prediction = predictor.predict([text])[0]
    return prediction, texts.evidence(states[0], int(logits[0].argmax()), top)


async def _known_soon(batcher: Batcher, folder: Path) -> KnownTexts:
    """Return what is known about the training texts, which are read once; 503 if that takes long, and it goes on."""
    if batcher.known is None or (batcher.known.done() and batcher.known.exception() is not None):
        batcher.known = asyncio.create_task(_known_texts(batcher, folder))
    try:
        known: KnownTexts = await asyncio.wait_for(asyncio.shield(batcher.known), READING_SECONDS)
    except TimeoutError:
        raise HTTPException(503, "the training texts are still being read: try again", {"retry-after": "5"}) from None
    return known


async def _known_texts(batcher: Batcher, folder: Path) -> KnownTexts:
    """Return the train rows of a run, read by its model a batch at a time, so that predictions go on in between."""
    task = await asyncio.to_thread(stored_task, RunFolder(folder))
    if task is None or not task.train:
        raise InputError("the folder has no training texts", path=folder)
    count = len(task.train)
    rows = [task.train[number * count // MOST_TEXTS] for number in range(MOST_TEXTS)] if count > MOST_TEXTS else []
    rows = rows or list(task.train)
    parts = []
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        inputs = [row.text if row.text_pair is None else (row.text, row.text_pair) for row in batch]
        parts.append(await batcher.compute(state_rows, batcher.predictor, inputs, [row.label for row in batch]))
    return KnownTexts(rows, count, TrainingTexts.join(parts))


def _training_text(row: Example, form: str, value: float) -> TrainingText:
    text = " / ".join(filter(None, (row.text, row.text_pair)))
    label = answer_text(row.label, form)
    return TrainingText(id=row.id, label=label, text=shorten(text, _CHARACTERS), value=value)
