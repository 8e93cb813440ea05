"""A served folder with two finished runs, and a page of Debian's chromium that watches what the pages do."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from endtask.web.app import listening_socket, make_app
from endtask.web.slow_clients import ImpatientProtocol

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCREENSHOTS = Path("build") / "screenshots"
_PATIENCE = 120_000
"""Milliseconds; a run compiles its kernels when a checkout is new."""


@dataclass
class Watched:
    """A page of the browser, the address of the server, and what went wrong on the page so far."""

    page: Page
    address: str
    folder: Path
    screenshots: Path
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open a path of the server."""
        self.page.goto(f"{self.address}{path}")
        return self.page

    def check(self, name: str) -> None:
        """Keep a screenshot; fail on errors of scripts, foreign requests and serious findings of axe-core."""
        from axe_playwright_python.sync_playwright import Axe

        self.screenshots.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(self.screenshots / f"{name}.png"), full_page=True)
        found = Axe().run(self.page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        described = [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in serious]
        assert described == []
        assert self.problems == []


@pytest.fixture(scope="module")
def served(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server and its folder, with the finished runs `first` and `second`."""
    import uvicorn

    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "second"):
        shutil.copytree(finished_run, folder / name)
    config = uvicorn.Config(make_app(folder), http=ImpatientProtocol, ws="none", log_level="warning")
    server = uvicorn.Server(config)
    with listening_socket("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://localhost:{listening.getsockname()[1]}", folder
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    pytest.importorskip("axe_playwright_python", reason="axe is not installed: make test-browser")
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium on this machine: make test-browser, or apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def watched(browser: Browser, served: tuple[str, Path], repository: Path) -> Iterator[Watched]:
    """A new page of the browser."""
    address, folder = served
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page = context.new_page()
    page.set_default_timeout(_PATIENCE)
    watched = Watched(page, address, folder, repository / SCREENSHOTS)
    page.on("console", lambda line: watched.problems.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: watched.problems.append(str(error)))
    page.on(
        "request",
        lambda sent: (
            None if sent.url.startswith((f"{address}/", "data:", "blob:")) else watched.problems.append(sent.url)
        ),
    )
    yield watched
    assert watched.problems == []
    context.close()
