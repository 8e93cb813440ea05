"""Texts of users in Markdown: plain text and code spans that no label, path or licence can break out of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import yaml


def plain(text: str) -> str:
    r"""Escape a user's text for a Markdown line: no line breaks, no markup, no HTML.

    >>> print(plain("my_<b>task\n# 2"))
    my\_\<b\>task \# 2
    """
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&])", r"\\\1", one_line(text))


def code(text: str) -> str:
    r"""Return a user's text as a code span, fenced by more backticks than its longest run of them.

    >>> print(code("a`b"), code("two\nlines"))
    `` a`b `` `two lines`
    """
    text = one_line(text) or " "
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return f"{'`' * (longest + 1)} {text} {'`' * (longest + 1)}" if longest else f"`{text}`"


def cell(text: str) -> str:
    r"""Return a code span for a cell of a table, where a bar would end the cell.

    >>> print(cell("a|b"))
    `a\|b`
    """
    return code(text).replace("|", "\\|")


def one_line(text: str) -> str:
    r"""Return a text without line breaks, control characters and repeated blanks.

    >>> one_line("two\n  lines\x1b[31m")
    'two lines [31m'
    """
    visible = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(visible.split())


@cache
def template(name: str) -> jinja2.Template:
    """Return a template of this package; its filters escape users' texts, as Markdown and not as HTML."""
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(plain=plain, code=code, cell=cell)
    return environment.from_string(resources.files("endtask.export").joinpath(name).read_text(encoding="utf-8"))


def front_matter(metadata: Mapping[str, Any]) -> str:
    """Return metadata as the YAML block that begins a card."""
    text = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{text}---\n"
