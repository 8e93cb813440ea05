"""Micro-batching: what arrives meanwhile is predicted together, and one request's trouble is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from starlette.exceptions import HTTPException

from endtask.serving.predictor import Predictor
from endtask.web.batching import BATCH_SIZE, Batcher


class StubPredictor:
    """Answers a text with its upper case, once it is released; notes its batches."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.batches: list[list[str]] = []

    def predict(self, texts: Sequence[str], *, batch_size: int) -> list[Any]:
        self.batches.append(list(texts))
        assert self.free.wait(30)
        if "bad" in texts:
            raise ValueError("bad")
        return [text.upper() for text in texts]


def batcher_of(stub: StubPredictor, **options: int) -> Batcher:
    return Batcher(cast(Predictor, stub), **options)


def test_requests_that_arrive_meanwhile_share_batches() -> None:
    stub = StubPredictor()
    batcher = batcher_of(stub)

    async def requests() -> list[list[Any]]:
        first = asyncio.create_task(batcher.predict(["first"]))
        while not stub.batches:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.predict([f"a{number}", f"b{number}"])) for number in range(40)]
        await asyncio.sleep(0)
        stub.free.set()
        return await asyncio.gather(first, *others)

    answers = asyncio.run(requests())
    assert answers == [["FIRST"], *([f"A{number}", f"B{number}"] for number in range(40))]
    assert [len(batch) for batch in stub.batches] == [1, BATCH_SIZE, BATCH_SIZE, 80 - 2 * BATCH_SIZE]


def test_a_full_queue_and_a_slow_answer_are_503() -> None:
    stub = StubPredictor()
    batcher = batcher_of(stub, most_waiting=2)

    async def requests() -> tuple[int, int, int]:
        running = asyncio.create_task(batcher.predict(["a", "b"]))
        while not stub.batches:
            await asyncio.sleep(0.001)
        with pytest.raises(HTTPException) as slow:
            await batcher.predict(["c"], seconds=0.01)
        waiting = asyncio.create_task(batcher.predict(["d", "e"]))
        await asyncio.sleep(0)
        with pytest.raises(HTTPException) as full:
            await batcher.predict(["f"])
        stub.free.set()
        answers = [*await running, *await waiting]
        return slow.value.status_code, full.value.status_code, len(answers)

    assert asyncio.run(requests()) == (503, 503, 4)
    assert ["c"] not in stub.batches


def test_an_error_reaches_the_requests_of_its_batch_alone() -> None:
    stub = StubPredictor()
    stub.free.set()
    batcher = batcher_of(stub)

    async def requests() -> list[Any]:
        with pytest.raises(ValueError, match="bad"):
            await batcher.predict(["bad"])
        return await batcher.predict(["good"])

    assert asyncio.run(requests()) == ["GOOD"]
