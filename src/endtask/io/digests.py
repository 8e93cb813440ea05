"""Digests: of JSON-like values and of the content of files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from endtask.io.compression import read_failure
from endtask.io.input_files import open_file


def fingerprint(*values: Any) -> str:
    """Return a short stable hash of JSON-like values."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def file_size(path: Path) -> int:
    """Return the size of a file on disk, in bytes."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise read_failure(error, path) from None


def file_digest(path: Path) -> str:
    """Return a hash of a file's bytes on disk; its times do not count, because copying changes them."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise read_failure(error, path) from None
