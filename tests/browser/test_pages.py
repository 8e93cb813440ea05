"""The pages of `endtask serve` in a real browser, as a user goes through them."""

from __future__ import annotations

import random
import re

import pytest

from endtask.config import load_settings
from endtask.reporting.run_folder import RunFolder
from tests.browser.conftest import Watched
from tests.toy_run import WORDS, sentence

pytestmark = pytest.mark.browser


def labelled_csv(rows: int = 90) -> str:
    chance, labels = random.Random(3), list(WORDS)
    lines = [f'{n},"{sentence(labels[n % 3], 6, chance)}, row {n}",{labels[n % 3]}' for n in range(rows)]
    return "\n".join(["nr,abstract,area", *lines]) + "\n"


def drop(watched: Watched, selector: str, name: str, content: str) -> None:
    """Drop a file on an element, as the browser does for a file of the desktop."""
    transfer = watched.page.evaluate_handle(
        """([name, content]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([content], name));
            return transfer;
        }""",
        [name, content],
    )
    for event in ("dragover", "drop"):
        watched.page.dispatch_event(selector, event, {"dataTransfer": transfer})


def test_a_dropped_file_becomes_a_run_that_is_watched_stopped_and_resumed(watched: Watched) -> None:
    page = watched.open("/start")
    drop(watched, "#drop", "my labels.csv", labelled_csv())
    page.get_by_text("90 rows, type text").wait_for()
    assert page.locator("#preview tbody tr").count() == 8
    assert page.locator('select[name="text"]').input_value() == "abstract"
    page.set_input_files(
        "#corpus-files", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"star moon orbit.\n\nsoup bread.\n"}
    )
    page.locator("#corpus-list li").wait_for()
    page.fill("#budget", "2s")
    page.fill("#name", "dropped")
    watched.check("start")
    page.click("#run")
    page.wait_for_url("**/runs/dropped/live")
    page.locator("#stages .finished").first.wait_for()
    page.reload()
    page.locator("#stages .finished").first.wait_for()
    page.click("#stop")
    page.locator("#resume:visible").wait_for()
    assert not page.locator("#problem").is_visible()
    watched.check("stopped")
    page.click("#resume")
    page.locator("#stages .finished").nth(7).wait_for()
    page.locator("#state", has_text="finished").wait_for()
    page.locator("#charts svg").first.wait_for()
    watched.check("live")
    assert RunFolder(watched.folder / "dropped").missing == []
    page.click("text=Runs")
    assert page.get_by_role("link", name="dropped", exact=True).is_visible()


def test_two_runs_are_compared(watched: Watched) -> None:
    page = watched.open("/")
    assert page.locator("#compare").is_disabled()
    for name in ("first", "second"):
        page.get_by_label(f"Compare {name}").check()
    watched.check("runs")
    page.click("#compare")
    assert "No clear difference" in page.inner_text("#verdict")
    watched.check("compare")


def test_the_selection_is_searched_explained_and_excluded(watched: Watched) -> None:
    page = watched.open("/runs/first/selection")
    page.locator("#passages > li").first.wait_for()
    total = int(re.findall(r"\d+", page.inner_text("#found"))[0])
    page.fill('input[name="words"]', "soup")
    page.wait_for_function("total => Number.parseInt(document.getElementById('found').textContent) < total", arg=total)
    first = page.locator("#passages > li").first
    assert "soup" in first.inner_text()
    first.locator("summary").click()
    first.get_by_text("Retrieved by").wait_for()
    watched.check("selection")
    first.get_by_role("button", name="Exclude").click()
    page.locator("#pending").wait_for()
    excluded = load_settings(watched.folder / "first" / "settings.yaml").corpus.exclude
    assert len(excluded) == 1
    assert excluded[0] in first.inner_text()
    watched.check("excluded")
    first.get_by_role("button", name="Exclude").click()
    page.locator("#excluded-count", has_text=re.compile("^0 texts$")).wait_for()
    assert load_settings(watched.folder / "first" / "settings.yaml").corpus.exclude == ()


def test_a_cell_opens_its_rows_and_a_label_is_corrected(watched: Watched) -> None:
    page = watched.open("/runs/first/errors")
    watched.check("errors")
    cell = page.locator(".matrix td a").first
    count = int(cell.inner_text())
    label, predicted = re.findall(r"with label (\S+) predicted (\S+)", cell.get_attribute("aria-label") or "")[0]
    cell.click()
    page.wait_for_url("**/errors?label=*")
    rows = page.locator("#rows-list > li")
    assert min(count, 50) == rows.count() > 0
    right = rows.first.locator("select.right-label")
    right.select_option(predicted)
    page.get_by_text("1 label corrected.").wait_for()
    name = rows.first.get_attribute("data-id")
    with page.expect_download() as download:
        page.get_by_role("link", name="test.csv").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(f"{name},") and line.endswith(f",{predicted}") for line in lines)
    watched.check("cell")
    right.select_option("")
    page.get_by_text("0 labels corrected.").wait_for()
    assert label != predicted


def test_a_text_is_typed(watched: Watched) -> None:
    page = watched.open("/runs/first/try")
    page.fill("#text", "soup bread oven")
    page.click("text=Predict")
    page.locator("#answer").wait_for()
    assert page.inner_text("#value") in WORDS
    assert page.locator(".bar-row").count() == len(WORDS)
    assert re.fullmatch(r"[\d.]+ ms on the server", page.inner_text("#latency"))
    page.click("#why")
    page.locator("#nearest li").first.wait_for()
    page.locator("#influential li").first.wait_for()
    page.click("#copy")
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl -s http://localhost:")
    watched.check("try")


@pytest.mark.parametrize("path", ["/", "/start", "/runs/first/live", "/runs/first/report"])
def test_pages_are_accessible_on_a_phone_in_the_dark(watched: Watched, path: str) -> None:
    watched.page.emulate_media(color_scheme="dark")
    watched.page.set_viewport_size({"width": 390, "height": 844})
    page = watched.open(path)
    page.wait_for_load_state("networkidle") if path != "/runs/first/live" else page.locator(
        "#stages li"
    ).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    watched.check(f"phone-{path.strip('/').replace('/', '-') or 'runs'}")
