"""The report in a real browser, opened as a file: cells open rows, lists are searched, nothing is requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def report(browser: Browser, finished_run: Path) -> Iterator[Page]:
    """The report of a finished run; its policy is bypassed for axe-core alone, which is added from outside."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda sent: None if sent.url.startswith("file:") else problems.append(sent.url))
    page.goto((finished_run / "report.html").as_uri())
    yield page
    assert problems == []
    context.close()


def test_a_cell_of_the_confusion_matrix_opens_its_rows(report: Page) -> None:
    cell = report.locator(".matrix td a").first
    rows = report.locator(f"{cell.get_attribute('href')} > li")
    assert not rows.first.is_visible()
    cell.focus()
    report.keyboard.press("Enter")
    rows.first.wait_for(state="visible")
    assert str(rows.count()) == cell.inner_text()


def test_passages_are_searched(report: Page) -> None:
    passages = report.locator("#passages > li")
    before = passages.locator("visible=true").count()
    report.fill('#selection input[type="search"]', "no such words anywhere")
    assert (passages.locator("visible=true").count(), before > 0) == (0, True)
    report.fill('#selection input[type="search"]', "")
    assert passages.locator("visible=true").count() == before


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_report_is_accessible_and_fits(report: Page, width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    report.set_viewport_size({"width": width, "height": 900})
    report.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    found = Axe().run(report).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    root = "document.documentElement"
    assert report.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0
