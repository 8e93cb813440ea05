"""The web application: routes, checks and limits put together, and its server."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI

from endtask.errors import InputError
from endtask.io.stage_folder import package_version
from endtask.progress import say
from endtask.web import (
    comparing,
    correcting,
    explaining,
    files,
    live,
    pages,
    predictions,
    runs,
    selecting,
    starting,
)
from endtask.web.limits import Limits
from endtask.web.problems import add_problem_handlers
from endtask.web.security import LOOPBACK, Access, Security
from endtask.web.site import Site

UPLOAD_PATH = "/api/uploads"
LARGEST_UPLOAD = 500_000_000
_HARMLESS = ("/predict", "/explain")
_PARTS = (files, pages, runs, comparing, live, selecting, correcting, predictions, explaining, starting)
_DESCRIPTION = "Runs of endtask and their models. Changes need the header `X-CSRF-Token` of `GET /api/session`."


def make_app(root: Path, access: Access | None = None, *, largest_upload: int = LARGEST_UPLOAD) -> FastAPI:
    """Return the application over a folder of runs."""
    if not root.is_dir():
        raise InputError("no such folder", path=root, hint="give the folder that holds the runs, or make it first")
    site = Site(root, access or Access())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        site.models.close()

    app = FastAPI(
        title="endtask",
        version=package_version(),
        description=_DESCRIPTION,
        docs_url=None,  # its page would load scripts from another machine
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.site = site
    for part in _PARTS:
        app.include_router(part.router)
    add_problem_handlers(app)
    app.add_middleware(Limits, upload_path=UPLOAD_PATH, largest_upload=largest_upload)
    app.add_middleware(Security, access=site.access, harmless=_HARMLESS)
    return app


def serve(root: Path, *, host: str, port: int, access: Access) -> None:
    """Serve a folder of runs until the process is interrupted."""
    import uvicorn

    from endtask.web.slow_clients import ImpatientProtocol

    access.check_address(host)
    config = uvicorn.Config(
        make_app(root, access),
        http=ImpatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    with listening_socket(host, port) as listening:
        say(f"serving {root} at http://{_shown(host)}:{listening.getsockname()[1]} (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket at an address; raises `InputError` if the address cannot be used."""
    if not 0 <= port < 65536:
        raise InputError(f"--port {port}: not a port", hint="a number up to 65535; 0 takes a free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror}", hint="choose another --port"
        ) from None


def _shown(host: str) -> str:
    if host in LOOPBACK:
        return "localhost"
    return f"[{host}]" if ":" in host else host
