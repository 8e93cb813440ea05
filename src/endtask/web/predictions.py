"""The API for predictions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from endtask.errors import InputError
from endtask.serving.predictor import Predictor, Text
from endtask.web.problems import PROBLEMS
from endtask.web.site import RunHere, SiteHere

MOST_TEXTS = 256
LONGEST_TEXT = 20_000
_MOST_WORDS = 5_000
_PAIR = 2

ShortText = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Words = Annotated[list[ShortText], Field(min_length=1, max_length=_MOST_WORDS)]

router = APIRouter(prefix="/api", tags=["predict"], responses=PROBLEMS)


class Texts(BaseModel):
    """Texts to predict for: strings, pairs of strings for a model of pairs, or lists of words for a tagger."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"texts": ["a text to classify", "another one"]}]}
    )

    texts: Annotated[list[ShortText | Words], Field(min_length=1, max_length=MOST_TEXTS)]


class Answers(BaseModel):
    """A prediction for each text, in their order, and the milliseconds that the server needed.

    A prediction has `label`, `probability` and `probabilities` (classes); `score` (numbers); `labels` and
    `probabilities` (label sets); or `words`, `tags`, `probabilities` and `spans` (tags).
    """

    predictions: list[dict[str, Any]]
    milliseconds: float


@router.post("/runs/{run}/predict")
async def predict(run: str, request: Texts, folder: RunHere, site: SiteHere) -> Answers:
    """Predict for up to 256 texts with the model of a run; concurrent requests share batches."""
    start = time.perf_counter()
    batcher = await site.models.batcher(folder)
    texts = [checked_text(batcher.predictor, number, text) for number, text in enumerate(request.texts, start=1)]
    answers = await batcher.predict(texts)
    spent = 1000 * (time.perf_counter() - start)
    return Answers(predictions=[asdict(answer) for answer in answers], milliseconds=round(spent, 2))


def checked_text(predictor: Predictor, number: int, given: str | list[str]) -> Text:
    """Return a text in the form that the model takes; raises `InputError` for any other form."""
    text: Text = given
    if isinstance(given, list) and not predictor.task_type.per_token:
        if len(given) != _PAIR:
            raise InputError(f"text {number} is a list of {len(given)} texts", hint="a pair has two")
        text = (given[0], given[1])
    predictor.check(number, text)
    return text
