"""The docstrings of one Python file, by parsing it."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

Block = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Named = tuple[str, str]


def docstrings_of_file(path: Path) -> list[Named]:
    """(Qualified name, docstring) pairs of one file; none where the file is not Python of this version."""
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return []
    try:
        tree = _parse(source)
    except (SyntaxError, ValueError, RecursionError):  # templates, Python 2, null bytes, endless expressions
        return []
    return list(_docstrings(tree, ""))


def _parse(source: bytes) -> ast.Module:
    # Parsing makes millions of objects without cycles; collecting them in between costs a quarter of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escape sequences
            return ast.parse(source)
    finally:
        if collecting:
            gc.enable()


def _docstrings(block: Block, qualified_name: str) -> Iterator[Named]:
    docstring = ast.get_docstring(block)
    if docstring:
        yield qualified_name or "<module>", docstring
    for inner in _definitions(block.body):
        yield from _docstrings(inner, f"{qualified_name}.{inner.name}" if qualified_name else inner.name)


def _definitions(
    statements: Sequence[ast.stmt],
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Classes and functions defined directly here, or inside `if`, `try` and `with`."""
    for statement in statements:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            for handler in getattr(statement, "handlers", ()):
                yield from _definitions(handler.body)
            for part in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(statement, part, ()))
