"""What the documentation site adds to MkDocs: files that pages link to outside docs/, GitHub's lists, and MathML.

Pages are written for GitHub too, where all of this works by itself. A linked file is copied to files/ of the site; a
Markdown page becomes a page of the site.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDER = "files"
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
_BLOCK = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~))", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_LIST_AFTER_TEXT = re.compile(r"^(?![ \t|#]|[-*+] |\d+\. )(\S.*)\n(?=(?:[-*]|1\.) )", re.MULTILINE)
_INDENT_OF_ITEM = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add every file outside docs/ that a page links to, and those that it links to in turn."""
    pending = [DOCS / file.src_uri for file in files.documentation_pages()]
    while pending:
        page = pending.pop()
        for target in _outside(page):
            uri = f"{FOLDER}/{_relative(target, ROOT)}"
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                if target.suffix == ".md":
                    pending.append(target)
    return files


def _outside(page: Path) -> list[Path]:
    """Return the files outside docs/ that a page links to; those of the repository only."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    found = [_target(page.parent, link) for link, _ in _LINK.findall(text)]
    return [path for path in found if path.is_relative_to(ROOT) and not path.is_relative_to(DOCS) and path.is_file()]


def _target(folder: Path, link: str) -> Path:
    path = (folder / link).resolve()
    return path / "README.md" if path.is_dir() else path


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to the place that a file has on the site, and write lists as Python-Markdown reads them."""
    source = Path(page.file.abs_src_path).resolve()
    here = PurePosixPath(page.file.src_uri).parent
    parts = _CODE.split(markdown)
    texts = (part if index % 2 else _relinked(part, source, str(here)) for index, part in enumerate(parts))
    return "".join(part if index % 2 else _with_lists(part) for index, part in enumerate(_BLOCK.split("".join(texts))))


def _with_lists(text: str) -> str:
    """Return text with an empty line before each list, and four spaces before what belongs to an item."""
    return _INDENT_OF_ITEM.sub("    ", _LIST_AFTER_TEXT.sub(r"\1\n\n", text))


def _relinked(text: str, source: Path, here: str) -> str:
    def link(match: re.Match[str]) -> str:
        path = _target(source.parent, match[1])
        if not path.is_relative_to(ROOT) or not path.exists():
            return match[0]
        uri = _relative(path, DOCS) if path.is_relative_to(DOCS) else f"{FOLDER}/{_relative(path, ROOT)}"
        return os.path.relpath(uri, here or ".") + (match[2] or "")

    return _LINK.sub(link, text)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def on_page_content(content: str, **_: Any) -> str:
    """Write formulas as MathML, which browsers draw without a script."""

    def formula(match: re.Match[str]) -> str:
        return convert(html.unescape(match[3]).strip(), display="block" if match[2] == "[" else "inline")

    return _FORMULA.sub(formula, content)
