"""Slow clients, over real sockets: they are answered and closed, and others are served meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from endtask.web.app import listening_socket, make_app
from endtask.web.limits import Limits
from endtask.web.slow_clients import ImpatientProtocol

SECONDS = 0.3


class Impatient(ImpatientProtocol):
    head_seconds = SECONDS


async def answer_to(app: Any, *parts: bytes) -> bytes:
    """Serve an app, send parts of a request with pauses, and return all that comes back until the connection closes."""
    with listening_socket("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app, http=Impatient, lifespan="off", log_level="critical"))
        running = asyncio.create_task(server._serve([listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.02)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        server.should_exit = True
        await running
    return answer


def app_of(folder: Path) -> FastAPI:
    app = make_app(folder)
    app.add_middleware(Limits, upload_path="/none", largest_upload=0, seconds=SECONDS)
    return app


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET / HTTP/1.1\r\n", b"host: loc"],
        [b"G"],
        [b"GET /static/icon.svg HTTP/1.1\r\nhost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nho"],
        [b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n", b"12345"],
        [b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nab\r\n"],
    ],
)
def test_a_request_that_never_ends_is_answered_with_408(tmp_path: Path, parts: list[bytes]) -> None:
    answer = asyncio.run(answer_to(app_of(tmp_path), *parts))
    assert answer.split(b"HTTP/1.1 ")[-1].startswith(b"408 ")


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    assert asyncio.run(answer_to(app_of(tmp_path))) == b""


@pytest.mark.parametrize("start", [b"\x16\x03\x01\x00\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"x" * 70_000])
def test_what_is_not_http_is_a_client_error(tmp_path: Path, start: bytes) -> None:
    assert asyncio.run(answer_to(app_of(tmp_path), start)).startswith(b"HTTP/1.1 4")
