"""Docstrings of Python files, by parsing them on all cores.

The workers are plain interpreters that read paths and write docstrings as JSON. `multiprocessing` would import the
user's own script again in each worker.
"""

from __future__ import annotations

import ast
import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from endtask.io.machine import usable_cores

Block = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Named = tuple[str, str]


def docstrings_of_file(path: Path) -> list[Named]:
    """Return (qualified name, docstring) pairs of one file; none if the file is not Python of this version."""
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return []
    try:
        tree = _parse(source)
    except (SyntaxError, ValueError, RecursionError):  # templates, Python 2, null bytes, endless expressions
        return []
    return list(_docstrings(tree, ""))


def _parse(source: bytes) -> ast.Module:
    # Parsing makes millions of objects without cycles; garbage collection would take a quarter of the time.
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
    """Yield the classes and functions defined by these statements, or inside `if`, `try` and `with`."""
    for statement in statements:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            for handler in getattr(statement, "handlers", ()):
                yield from _definitions(handler.body)
            for part in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(statement, part, ()))


_FEWEST_FILES_PER_WORKER = 200
_WORKER = "from endtask.corpus.python_files import run_worker; run_worker()"


def docstrings_of_files(paths: Sequence[Path]) -> list[list[Named]]:
    """Return the docstrings of each file, in the order of the files."""
    workers = min(usable_cores(), len(paths) // _FEWEST_FILES_PER_WORKER)
    if workers < 2:
        return [docstrings_of_file(path) for path in paths]
    # Every n-th file for each worker: neighbouring files have similar sizes, so the load is even.
    started = [_start(paths[first::workers]) for first in range(workers)]
    found: list[list[Named]] = [[] for _ in paths]
    for first, process in enumerate(started):
        assert process.stdout is not None
        with process:
            found[first::workers] = [[(name, text) for name, text in file] for file in json.load(process.stdout)]
        if process.returncode:
            raise RuntimeError(f"a parsing process ended with code {process.returncode}")
    return found


def run_worker() -> None:
    """Read a list of paths from standard input and write the docstrings of each to standard output."""
    json.dump([docstrings_of_file(Path(path)) for path in json.load(sys.stdin)], sys.stdout)


def _start(paths: Sequence[Path]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None
    json.dump([str(path) for path in paths], process.stdin)
    process.stdin.close()
    return process
