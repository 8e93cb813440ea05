"""The files of rows: what a kill cut off is no row, and rows that were made otherwise do not mix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.atomic import atomic_file
from endtask.io.nested import changes_in_words

Tree = dict[str, Any]
ROWS = "alignment.jsonl"
_MADE_SO = ("body", "result")
"""Kinds of rows that say how they were made."""


def read_rows(path: Path) -> Iterator[tuple[int, Tree]]:
    """Each row with its number."""
    for number, line in enumerate(_whole_lines(path), start=1):
        row = _parsed(line)
        if row is None:
            raise not_a_row(path, number)
        yield number, row


def not_a_row(path: Path, number: int) -> InputError:
    """What to say of a row that is none."""
    return InputError("not a row of benchmarks.alignment.train", path=path, row=number)


def _whole_lines(path: Path) -> list[bytes]:
    """All lines but a last one that a kill cut off; bytes, since that may be inside a character."""
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n") if path.exists() else []
    return lines[:-1] if lines and _parsed(lines[-1]) is None else lines


def _parsed(line: bytes) -> Tree | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "kind" in row else None


def mend_end(path: Path) -> None:
    """Let the file end with a whole line, so that others can follow; what was cut off is done again anyway."""
    whole = b"".join(line + b"\n" for line in _whole_lines(path))
    if path.exists() and path.read_bytes() != whole:
        with atomic_file(path) as aside:
            aside.write_bytes(whole)


def refuse_mixed(row: Tree, made: Tree) -> None:
    """Refuse a row that was made otherwise: with other seeds or epochs, or other settings of bodies."""
    if row["kind"] in _MADE_SO and (changes := changes_in_words(made_as(row), made)):
        raise InputError(f"rows of {row['body']} were made otherwise than others: {', '.join(changes)}")


def made_as(row: Tree) -> Tree:
    """How a body or a result was made."""
    return {name: row[name] for name in ("effort", "values")}
