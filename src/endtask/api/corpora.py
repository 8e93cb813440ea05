"""The corpus as the user holds it: paths, or texts in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from endtask.api.tables import is_column, is_frame, is_instance, rows_of
from endtask.corpus.files import format_of
from endtask.corpus.sources import DOCSTRINGS, HUB_PREFIX, has_matches, parse_source
from endtask.errors import InputError
from endtask.io.addresses import is_address
from endtask.io.tables import Row

_KNOWN = "give a path, a list of paths, a list of texts, a DataFrame or a column of one, or a datasets.Dataset"
_LONGEST_PATH = 1000


def source_settings(corpus: Any) -> list[dict[str, str]] | None:
    """Return the sources of a corpus of paths, as settings; None for texts in memory.

    >>> source_settings("wiki=data/*.jsonl"), source_settings(["a text", "and another"])
    ([{'path': 'data/*.jsonl', 'name': 'wiki'}], None)
    """
    if isinstance(corpus, str | Path):
        return [_source(corpus)]
    if not isinstance(corpus, list | tuple) or not corpus:
        return None
    found = [isinstance(entry, Path) or (isinstance(entry, str) and _exists(entry)) for entry in corpus]
    if all(exists or _resembles_path(entry) for exists, entry in zip(found, corpus, strict=True)):
        return [_source(entry) for entry in corpus]
    if any(found):
        message = f"{sum(found):,} of {len(found):,} entries are paths, and this one is not"
        hint = "give paths or texts; several paths in one list must all exist"
        raise InputError(message, path="corpus", row=found.index(False) + 1, hint=hint)
    return None


def _exists(entry: str) -> bool:
    """Return whether an entry of a list names a source of text on this computer or the hub."""
    if entry == DOCSTRINGS or is_address(entry) or (entry.startswith(HUB_PREFIX) and not any(map(str.isspace, entry))):
        return True
    if len(entry) > _LONGEST_PATH or "\n" in entry:
        return False
    path = str(parse_source(entry).path)
    return Path(path).exists() or has_matches(path)


def _resembles_path(entry: Any) -> bool:
    """Return whether an entry is written like a path: no white space, and a known suffix or a glob.

    >>> _resembles_path("notes/*.txt"), _resembles_path("absent.csv"), _resembles_path("A text.")
    (True, True, False)
    """
    if not isinstance(entry, str) or len(entry) > _LONGEST_PATH or any(map(str.isspace, entry)):
        return False
    return "*" in entry or format_of(Path(entry)) is not None


def _source(entry: str | Path) -> dict[str, str]:
    if isinstance(entry, Path):
        return {"path": str(entry)}
    return parse_source(entry).model_dump(exclude_none=True)


def corpus_rows(corpus: Any) -> list[Row]:
    """Return the rows of a corpus in memory: a text each, or the columns of a table."""
    if is_frame(corpus) or is_instance(corpus, "datasets", "Dataset"):
        return rows_of(corpus, "corpus")
    if not is_column(corpus):
        raise InputError(f"of type {type(corpus).__name__}", path="corpus", hint=_KNOWN)
    return list(_text_rows(list(corpus)))


def _text_rows(texts: Sequence[Any]) -> Iterator[Row]:
    if not texts:
        raise InputError("no texts", path="corpus", hint="leave `corpus` out to train on the task alone")
    for number, text in enumerate(texts, start=1):
        if isinstance(text, Mapping):
            yield dict(text)
        elif isinstance(text, str):
            yield {"text": text}
        else:
            message = f"the text is of type {type(text).__name__}"
            raise InputError(message, path="corpus", row=number, hint=_KNOWN)
