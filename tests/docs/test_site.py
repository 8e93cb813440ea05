"""The documentation site: it builds without a warning, asks nothing of other servers, and draws formulas without scripts."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("latex2mathml")

# What a browser loads by itself; links that a reader may follow are not among it.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//|<link\b[^>]*\bhref=["']?https?://"""
)


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert [str(page.relative_to(site)) for page in pages if _LOADED.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    page = (site / "concepts" / "methods.html").read_text(encoding="utf-8")
    assert page.count("<math") > 15
    assert "$$" not in page
    assert "arithmatex" not in page


@pytest.mark.slow
def test_linked_files_outside_the_folder_are_on_the_site(site: Path, repository: Path) -> None:
    copied = site / "files" / "examples" / "csv_file.py"
    assert copied.read_bytes() == (repository / "examples" / "csv_file.py").read_bytes()
    assert "ARCHITECTURE.html" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "files" / "ARCHITECTURE.html").exists()


def hooks(repository: Path) -> dict[str, Any]:
    return runpy.run_path(str(repository / "docs" / "site_hooks.py"))


def test_lists_are_written_as_python_markdown_reads_them(repository: Path) -> None:
    write = hooks(repository)["_with_lists"]
    assert write("It prints\n- one\n- two\n  and more\n") == "It prints\n\n- one\n- two\n    and more\n"
    assert write("1. one\n   - deeper\n") == "1. one\n    - deeper\n"
    assert write("| a | b |\n|---|---|\n") == "| a | b |\n|---|---|\n"


def test_the_page_of_commands_agrees_with_the_code(repository: Path) -> None:
    generator = runpy.run_path(str(repository / "docs" / "make_commands_page.py"))
    page = (repository / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert page == generator["page"](), "make docs writes it again"
