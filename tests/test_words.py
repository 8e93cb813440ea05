"""The code uses the field's words: no name contains a private word of docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PRIVATE = frozenset(
    [
        "arm",
        "arms",
        "ask",
        "asked",
        "asker",
        "askers",
        "bench",
        "beside",
        "body",
        "brought",
        "figures",
        "further",
        "guard",
        "guarded",
        "halves",
        "idle",
        "judge",
        "judged",
        "judges",
        "judging",
        "kept",
        "look",
        "looks",
        "lot",
        "mine",
        "ours",
        "piece",
        "pieces",
        "place",
        "places",
        "preview",
        "refuse",
        "renew",
        "renewal",
        "renews",
        "room",
        "rooms",
        "said",
        "theirs",
        "told",
        "turn",
        "turns",
        "unasked",
        "way",
        "ways",
        "work",
    ]
)
"""Words of the table in docs/glossary.md that mean nothing to a reader of the field."""


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """Each name that a module defines: functions, classes, arguments, variables and attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def words_of(name: str) -> set[str]:
    """The words of a name in snake or camel case, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_words_of_a_name() -> None:
    assert words_of("_find_brought") == {"find", "brought"}
    assert words_of("KeptRows") == {"kept", "rows"}
    assert words_of("MOST_JUDGES") == {"most", "judges"}


def test_no_private_word_is_a_name(repository: Path) -> None:
    package = repository / "src" / "endtask"
    modules = sorted(package.rglob("*.py"))
    names = [(path, line, name) for path in modules for line, name in (*names_in(path), (0, path.stem))]
    names += [(path, 0, path.name) for path in sorted(package.rglob("*")) if path.is_dir()]
    found = [f"{path.relative_to(package)}:{line}: {name}" for path, line, name in names if words_of(name) & PRIVATE]
    assert found == []
