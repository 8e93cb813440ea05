"""A served folder with the finished run `run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from endtask.web.app import make_app
from endtask.web.security import CSRF_HEADER

ADDRESS = "http://localhost:8765"


def client_of(root: Path, **options: Any) -> TestClient:
    """A client with the header that changes need; errors of the server are raised in the test."""
    app = make_app(root, **options)
    return TestClient(app, base_url=ADDRESS, headers={CSRF_HEADER: app.state.site.access.csrf})


@pytest.fixture(scope="module")
def client(finished_run: Path) -> Iterator[TestClient]:
    """A client of the folder of the finished run; tests must not change anything there."""
    with client_of(finished_run.parent) as client:
        yield client


@pytest.fixture
def own_client(own_run: Path) -> Iterator[TestClient]:
    """A client of the folder of a copy of the finished run."""
    with client_of(own_run.parent) as client:
        yield client
