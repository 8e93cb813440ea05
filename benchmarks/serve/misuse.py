"""Wrong requests and slow clients: each must get an answer with a status between 400 and 499."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from benchmarks.serve.model import RUN
from benchmarks.serve.server import Server

_PATIENCE = 45.0
_PREDICT = f"/api/runs/{RUN}/predict"
Row = dict[str, Any]


def wrong_contents() -> dict[str, bytes]:
    """Return contents of a request for predictions that are not what the API takes."""
    values: dict[str, Any] = {
        "texts is a string": {"texts": "soup"},
        "texts is a number": {"texts": 1},
        "texts is null": {"texts": None},
        "no texts": {"texts": []},
        "a text is a number": {"texts": [1]},
        "a text is an object": {"texts": [{}]},
        "a pair for a model of texts": {"texts": [["a", "b"]]},
        "an unknown key": {"texts": ["a"], "temperature": 1},
        "too many texts": {"texts": ["a"] * 257},
        "a text that is too long": {"texts": ["a" * 20_001]},
        "a list": [],
    }
    return {
        "empty": b"",
        "malformed JSON": b'{"texts": ["a"',
        "no JSON": b"<xml/>",
        "not UTF-8": b'{"texts": ["\xff"]}',
        "half a character": b'{"texts": ["\\ud800"]}',
        "deep nesting": b'{"texts": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        "a huge number": b'{"texts": [' + b"9" * 100_000 + b"]}",
        "a huge body": b'{"texts": ["' + b"x" * 30_000_000 + b'"]}',
        **{name: json.dumps(value).encode() for name, value in values.items()},
    }


def broken_requests(port: int) -> dict[str, bytes]:
    """Return requests that stop in the middle: the client waits, as a slow one does."""
    host = f"host: localhost:{port}\r\n"
    return {
        "a head that never ends": f"GET / HTTP/1.1\r\n{host}x-slow: ".encode(),
        "a body that never ends": f"POST {_PREDICT} HTTP/1.1\r\n{host}content-length: 100\r\n\r\n{{".encode(),
        "a chunk that never ends": f"POST {_PREDICT} HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n5\r\nab".encode(),
        "no HTTP": b"\x16\x03\x01\x02\x00\r\n\r\n",
        "a foreign host": b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        "a change without the CSRF token": f"POST /api/runs/{RUN}/stop HTTP/1.1\r\n{host}content-length: 0\r\n\r\n".encode(),
        "a negative length": f"POST {_PREDICT} HTTP/1.1\r\n{host}content-length: -5\r\n\r\n".encode(),
    }


async def misuse(server: Server) -> list[Row]:
    """Return the status of the answer to each wrong request; all are sent at once."""
    head = f"POST {_PREDICT} HTTP/1.1\r\nhost: localhost:{server.port}\r\ncontent-type: application/json\r\n"
    requests = {
        name: f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
        for name, content in wrong_contents().items()
    }
    requests |= broken_requests(server.port)
    statuses = await asyncio.gather(*(_status(server.port, request) for request in requests.values()))
    return [
        {"part": "misuse", "case": name, "status": status, "is_clean": status is not None and 400 <= status < 500}
        for name, status in zip(requests, statuses, strict=True)
    ]


async def _status(port: int, request: bytes) -> int | None:
    """Return the status of the answer; None without one."""
    reader, writer = await asyncio.open_connection("localhost", port)
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), _PATIENCE)
        return int(line.split(b" ")[1])
    except (OSError, TimeoutError, IndexError, ValueError):
        return None
    finally:
        writer.close()
