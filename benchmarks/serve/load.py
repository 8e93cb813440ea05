"""Many clients at once: each sends the next text as soon as it has the answer to the last one."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.serve.model import RUN, request_texts
from benchmarks.serve.server import Server

CLIENTS, SECONDS, WARM_SECONDS = 200, 60.0, 10.0
_TEXTS = 500
_PATIENCE = 60.0
Row = dict[str, Any]


@dataclass
class _Measured:
    milliseconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    megabytes: list[tuple[float, float]] = field(default_factory=list)


async def load(server: Server, clients: int = CLIENTS, seconds: float = SECONDS) -> Row:
    """Return the requests, failures, latencies and memory of a server under load."""
    requests = [_request(server.port, text) for text in request_texts(_TEXTS)]
    measured, start = _Measured(), time.monotonic()
    watch = asyncio.create_task(_watch_memory(server, measured, start, seconds))
    await asyncio.gather(
        *(_client(server.port, requests, number, start + seconds, measured) for number in range(clients))
    )
    spent = time.monotonic() - start
    await watch
    early, late = (_memory_at(measured, at) for at in (WARM_SECONDS, seconds))
    times = np.asarray(measured.milliseconds or [0.0])
    return {
        "part": "load",
        "clients": clients,
        "seconds": round(spent, 1),
        "requests": len(measured.milliseconds),
        "failed": len(measured.failures),
        "failures": sorted(set(measured.failures))[:5],
        "requests_per_second": round(len(measured.milliseconds) / spent, 1),
        "p50_ms": round(float(np.percentile(times, 50)), 1),
        "p99_ms": round(float(np.percentile(times, 99)), 1),
        "megabytes_early": round(early, 1),
        "megabytes_late": round(late, 1),
        "memory_growth_percent": round(100 * (late - early) / early, 2),
    }


def _request(port: int, text: str) -> bytes:
    content = json.dumps({"texts": [text]}).encode()
    head = (
        f"POST /api/runs/{RUN}/predict HTTP/1.1\r\nhost: localhost:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _client(port: int, requests: list[bytes], number: int, end: float, measured: _Measured) -> None:
    """Send requests on one connection until the end; a connection that fails is opened again."""
    sent = number
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("localhost", port)
        except OSError as error:
            measured.failures.append(f"connect: {type(error).__name__}")
            await asyncio.sleep(0.1)
            continue
        try:
            while time.monotonic() < end:
                await _exchange(reader, writer, requests[sent % len(requests)], measured)
                sent += 7
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            measured.failures.append(f"{type(error).__name__}: {error}"[:80])
        finally:
            writer.close()


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, measured: _Measured
) -> None:
    start = time.perf_counter()
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE)
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    content = await asyncio.wait_for(reader.readexactly(int(length.split(b":")[1])), _PATIENCE)
    measured.milliseconds.append(1000 * (time.perf_counter() - start))
    status = head.split(b" ", 2)[1]
    if status != b"200" or len(json.loads(content)["predictions"]) != 1:
        measured.failures.append(f"status {status.decode()}")


async def _watch_memory(server: Server, measured: _Measured, start: float, seconds: float) -> None:
    while (now := time.monotonic() - start) < seconds:
        measured.megabytes.append((now, server.megabytes()))
        await asyncio.sleep(0.5)


def _memory_at(measured: _Measured, seconds: float) -> float:
    """Return the memory at the last measurement before a moment."""
    return [size for at, size in measured.megabytes if at <= seconds][-1]
