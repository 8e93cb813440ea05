"""Micro-batching: requests that arrive while the model computes are predicted together in the next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from endtask.serving.file_predictions import predict_by_length
from endtask.serving.predictor import Answer, Predictor, Text

BATCH_SIZE = 32
MOST_WAITING = 4096
"""Texts that may wait for one model."""
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class _Waiting:
    texts: Sequence[Text]
    answers: asyncio.Future[list[Answer]]


class Batcher:
    """A model with its own thread and a queue; requests are answered in the order in which they arrive.

    A request does not wait for others: the model takes whatever is in the queue as soon as it is free.
    """

    def __init__(self, predictor: Predictor, *, most_waiting: int = MOST_WAITING) -> None:
        self.predictor = predictor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._queue: deque[_Waiting] = deque()
        self._most_waiting = most_waiting
        self._runner: asyncio.Task[None] | None = None
        self.known: asyncio.Task[Any] | None = None  # what `explaining.py` knows about the training texts

    async def predict(self, texts: Sequence[Text], *, seconds: float = ANSWER_SECONDS) -> list[Answer]:
        """Return the predictions for the texts of a request; 503 if too many wait or the answer takes too long."""
        if sum(len(waiting.texts) for waiting in self._queue) + len(texts) > self._most_waiting:
            raise HTTPException(503, "too many texts are waiting for this model", {"retry-after": "1"})
        waiting = _Waiting(texts, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        try:
            return await asyncio.wait_for(waiting.answers, seconds)
        except TimeoutError:
            if waiting in self._queue:
                self._queue.remove(waiting)
            raise HTTPException(503, "the prediction took too long", {"retry-after": "5"}) from None

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function that uses the model, run in the model's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Let the model finish its batch and drop the thread."""
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while self._queue:
            batch = self._take()
            texts = [text for waiting in batch for text in waiting.texts]
            try:
                answers = await self.compute(predict_by_length, self.predictor, texts, BATCH_SIZE)
            except Exception as error:  # the requests of this batch get it; the next batch may work
                _fail(batch, error)
                continue
            start = 0
            for waiting in batch:
                if not waiting.answers.done():
                    waiting.answers.set_result(answers[start : start + len(waiting.texts)])
                start += len(waiting.texts)

    def _take(self) -> list[_Waiting]:
        """Take requests from the front of the queue: one, and more while they fill a batch."""
        taken = [self._queue.popleft()]
        size = len(taken[0].texts)
        while self._queue and size + len(self._queue[0].texts) <= BATCH_SIZE:
            taken.append(self._queue.popleft())
            size += len(taken[-1].texts)
        return taken


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.answers.done():
            waiting.answers.set_exception(error)
