"""What a corpus holds, by content: the same for a copy elsewhere, another after any change of a byte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from endtask.corpus.sources import DOCSTRINGS, Source
from endtask.io.compression import read_failure


def source_contents(source: Source) -> dict[str, Any]:
    """All that decides which documents a source gives."""
    head = {"name": source.name, "text": source.text, "license": source.license}
    if source.path == DOCSTRINGS:
        from endtask.corpus.docstrings import docstring_fingerprint

        return {**head, "docstrings": docstring_fingerprint()}
    if not source.files:
        from endtask.corpus.hub import hub_digests

        return {**head, "hub": hub_digests(source.path)}
    files = [[file.label, file_size(file.path), file_digest(file.path)] for file in source.files]
    return {**head, "files": files}


def file_size(path: Path) -> int:
    """The file's bytes on disk."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise read_failure(error, path) from None


def file_digest(path: Path) -> str:
    """A hash of the file's bytes as they lie on disk; never of its times, which copying changes."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise read_failure(error, path) from None
