"""The load benchmark: its requests against a server of this process, and its statistics."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from benchmarks.serve import misuse
from benchmarks.serve.load import load
from benchmarks.serve.model import RUN
from benchmarks.serve.page import summarize
from benchmarks.serve.server import Server
from endtask.web.app import listening_socket, make_app
from endtask.web.slow_clients import ImpatientProtocol


@dataclass
class ThisProcess:
    pid: int = os.getpid()


def test_requests_are_answered_and_wrong_ones_refused(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow clients are left out, since they wait for the time-out; `tests/web/test_slow_clients.py` has them."""
    shutil.copytree(finished_run, tmp_path / RUN)
    slow = ("a head that never ends", "a body that never ends", "a chunk that never ends")
    requests = misuse.broken_requests
    monkeypatch.setattr(
        misuse, "broken_requests", lambda port: {name: one for name, one in requests(port).items() if name not in slow}
    )
    config = uvicorn.Config(make_app(tmp_path), http=ImpatientProtocol, ws="none", log_level="error")
    running = uvicorn.Server(config)
    with listening_socket("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        server = Server(cast(Any, ThisProcess()), listening.getsockname()[1], "")
        row = asyncio.run(load(server, clients=3, seconds=1.0))
        wrong = asyncio.run(misuse.misuse(server))
        running.should_exit = True
        thread.join(20)
    assert (row["failed"], row["failures"]) == (0, [])
    assert row["requests"] >= 3
    assert row["p50_ms"] <= row["p99_ms"]
    assert [one for one in wrong if not one["is_clean"]] == []
    assert len(wrong) > 20
    summary = summarize([row, *wrong, {"part": "schema", "cases": 1000, "failed": 2}])
    assert (summary["failed_requests"], summary["misuse_failed"], summary["schema_cases_failed"]) == (0, 0, 2)
    assert summary["memory_growth_percent"] == row["memory_growth_percent"]
