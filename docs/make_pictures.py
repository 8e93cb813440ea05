"""Take the pictures of the documentation from real runs: the demo's report, a terminal with the tutorial's commands.

    .venv/bin/endtask demo --output runs/demo
    .venv/bin/python docs/make_pictures.py runs/demo/with-corpus

Needs the extra `browser` and Chromium (on Debian: apt-get install chromium).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from endtask.reporting.page import write_report

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, COLUMNS = 1200, 760, 104
COMMANDS = (
    "endtask check --task labels.csv --corpus 'notes/*.txt'",
    "endtask run --task labels.csv --corpus 'notes/*.txt' --budget 400steps --output runs/mine",
    'endtask predict runs/mine "the crew hoisted the sail before the tide turned"',
    "endtask why runs/mine --example train-12 --top 1",
)
"""The tutorial, with a budget of steps, which buys the same training on any machine."""
_MOST_LINES = 14
_FONT = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)


def report_pictures(run: Path) -> None:
    """Take pictures of the first screen of a report, light and dark, and of its errors with a cell opened."""
    from playwright.sync_api import sync_playwright

    page_file = write_report(run).resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page.goto(page_file)
            page.screenshot(path=PICTURES / f"report-{scheme}.png")
            page.close()
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file)
        page.locator("#errors details").first.evaluate("details => details.open = true")
        page.locator("#errors").evaluate("section => section.scrollIntoView()")
        page.screenshot(path=PICTURES / "report-errors.png")
        browser.close()


def terminal_picture() -> None:
    """Run the tutorial's commands on toy data and draw what they print."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "docs" / "tutorial" / "make_toy_data.py", folder], check=True)
        console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold green"))
            for line in _shortened(_output(command, Path(folder))):
                console.print(Text(line), soft_wrap=False)
    drawing = console.export_svg(title="From a CSV file to a model", unique_id="endtask")
    (PICTURES / "terminal.svg").write_text(_FONT.sub("", drawing), encoding="utf-8")


def _output(command: str, folder: Path) -> list[str]:
    """Return the lines that a command prints; its name is that of the module, so that no installation is needed."""
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    progress = [line for line in done.stderr.splitlines() if command.startswith("endtask run")]
    return [*progress, *done.stdout.splitlines()]


def _shortened(lines: list[str]) -> list[str]:
    """Return the first and the last lines of a long output."""
    if len(lines) <= _MOST_LINES:
        return [*lines, ""]
    half = _MOST_LINES // 2
    return [*lines[:half], f"  ({len(lines) - 2 * half} more lines)", *lines[-half:], ""]


def main(run: str) -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    report_pictures(Path(run))
    terminal_picture()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/demo/with-corpus"]))
