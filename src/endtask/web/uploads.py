"""Files that a user drops on the page: each in a folder of its own below the served folder, under a random id."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.exceptions import HTTPException

from endtask.errors import InputError
from endtask.io.atomic import atomic_file
from endtask.io.tables import row_suffixes

FOLDER = ".uploads"
"""Hidden, so that no search for runs looks into it."""
MOST_BYTES = 5_000_000_000
"""Bytes of all uploads of a served folder."""
_TEXT_SUFFIXES = (".txt", ".md", ".html", ".pdf", ".zst", ".gz")
_ID = re.compile(r"[0-9a-f]{16}")
_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 100


class Uploads:
    """The uploaded files below a served folder."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER

    async def store(self, name: str, parts: AsyncIterator[bytes]) -> tuple[str, Path, int]:
        """Write a file, and return its id, path and size; a part of a file is never left."""
        file_name = safe_name(name)
        most = MOST_BYTES - sum(file.stat().st_size for file in self._folder.glob("*/*"))
        number = secrets.token_hex(8)
        folder = self._folder / number
        folder.mkdir(parents=True)
        size = 0
        try:
            with atomic_file(folder / file_name) as aside, open(aside, "wb") as file:
                async for part in parts:
                    size += len(part)
                    if size > most:
                        hint = f"delete old files in {FOLDER} of the served folder"
                        raise HTTPException(413, f"uploads have {MOST_BYTES:,} bytes in all: {hint}")
                    file.write(part)
        except BaseException:
            folder.rmdir()
            raise
        return number, folder / file_name, size

    def file(self, number: str) -> Path:
        """Return an uploaded file; raises `InputError` for any other id."""
        folder = self._folder / number
        files = list(folder.iterdir()) if _ID.fullmatch(number) and folder.is_dir() else []
        if len(files) != 1:
            raise InputError("no such upload", hint="drop the file again")
        return files[0]


def safe_name(name: str) -> str:
    """Return the name of an uploaded file without folders and odd characters; raises for an unknown kind of file.

    >>> safe_name("../my labels (1).csv")
    'my-labels-1-.csv'
    """
    base = _UNSAFE.sub("-", re.split(r"[/\\]", name)[-1]).lstrip(".-")[-_LONGEST_NAME:]
    suffix = Path(base).suffix.lower()
    if suffix not in (*row_suffixes(), *_TEXT_SUFFIXES):
        raise InputError(f"{base or 'the file'}: unknown kind of file", hint=", ".join(row_suffixes()))
    return base
