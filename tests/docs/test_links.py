"""Links of the documentation lead to files and headings, and the settings that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from endtask.config import Settings
from endtask.config.messages import section_of
from endtask.config.section import PartSection

_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^)>\s]+)>?\)")
_KEY = re.compile(r"`(?:--set )?([a-z_0-9]+(?:\.[a-z_0-9]+)+)(?:[:=][^`]*)?`")
SECTIONS = {"task", "corpus", "retrieve", "select", "domain", "aligned", "tokenizer", "model", "pretrain", "finetune"}


@pytest.fixture(scope="module")
def pages(repository: Path) -> list[Path]:
    """Every page for people: those of the root, of docs/ and of folders with a README."""
    roots = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]
    return sorted([*roots, *repository.glob("*/README.md"), *repository.glob("examples/*/README.md")])


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    plain = [re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ +(.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain}


def problem_of(page: Path, link: str) -> str | None:
    """What is wrong with a relative link, or None."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{page.name}: {link} does not exist"
    if anchor and target.suffix == ".md" and anchor not in anchors_of(target):
        return f"{page.name}: {link} has no such heading"
    return None


def test_links_lead_somewhere(pages: list[Path]) -> None:
    links = [(page, link) for page in pages for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))]
    relative = [(page, link) for page, link in links if "://" not in link and not link.startswith("mailto:")]
    assert len(relative) > 100
    assert [problem for page, link in relative if (problem := problem_of(page, link))] == []


def test_every_page_is_in_the_index(repository: Path) -> None:
    docs = repository / "docs"
    listed = {(docs / link).resolve() for link in _LINK.findall((docs / "README.md").read_text(encoding="utf-8"))}
    pages = {page.resolve() for page in docs.rglob("*.md")} - {(docs / "README.md").resolve()}
    assert sorted(str(page.relative_to(docs)) for page in pages - listed) == []


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a section, with the options of all parts that it may name."""
    for name in model.model_fields:
        yield prefix + name
        below = section_of(model, name)
        if below is not None:
            yield from keys_of(below, f"{prefix}{name}.")
    if issubclass(model, PartSection):
        for part in model.registry.names():
            yield from (prefix + option for option in model.registry.get(part).Config.model_fields)


def test_every_setting_that_a_page_names_exists(repository: Path) -> None:
    keys = set(keys_of(Settings))
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    current = [
        page for page in pages if page.parent.name != "results" and page.name not in ("decisions.md", "glossary.md")
    ]
    unknown = []
    for page in current:
        for key in _KEY.findall(page.read_text(encoding="utf-8")):
            if key.endswith((".parquet", ".json")):
                continue
            known = re.sub(r"^(pretrain\.objectives|tasks)\.\w+(?=\.)", r"\1", key)
            if key.split(".")[0] in SECTIONS and known not in keys and key not in keys:
                unknown.append(f"{page.name}: {key}")
    assert unknown == []
