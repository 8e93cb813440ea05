"""The built-in task of the demo: classify documentation by library."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from endtask.corpus.docstrings import docstring_documents
from endtask.errors import InputError
from endtask.records import Document, Example
from endtask.task.text_keys import normalize

NAME = "docstrings"
# Hard dependencies of endtask or of its hard dependencies, so every install has all eight.
LIBRARIES = ("huggingface_hub", "networkx", "numpy", "scipy", "sklearn", "sympy", "torch", "transformers")
# Texts per library; test takes the first hashes, so it does not change when train grows.
SPLIT_SIZES: Mapping[str, int] = {"test": 120, "dev": 80, "train": 30}
# The topic should distinguish the libraries, not the layout of parameter lists: texts are the opening prose only.
OPENING_CHARACTERS = 300
MINIMUM_CHARACTERS = 60

NOTE = f"built from the docstrings of {len(LIBRARIES)} installed libraries, their own names removed"

SECTION = re.compile(
    r"""(\.\.\s | :\w+\s)                                         # directive or field list
      | (parameters|returns|raises|yields|examples?|notes?|see\ also|references|explanation)[ \t]*(\n|$)
      | \w+(\s\w+)?:[ \t]*(\n|$)                                 # `Args:` alone on its line
      | [^\n]*\n[ \t]*[-=~]{3,}[ \t]*(\n|$)                      # underlined heading
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    """A text that may enter the task; candidates sort by the hash of their id."""

    hash: str
    id: str
    text: str


def docstring_splits(seed: int = 0, documents: Iterable[Document] | None = None) -> dict[str, list[Example]]:
    """Return the splits of the task "classify the opening of a docstring by library".

    The eight classes are balanced, and equal texts are in one split only. The split of a text depends on `seed` and on
    a hash of the document's id: a library that adds or loses a few docstrings moves only those. Tests pass `documents`
    instead of the installed libraries.
    """
    candidates = _candidates(docstring_documents() if documents is None else documents, seed)
    splits: dict[str, list[Example]] = {split: [] for split in SPLIT_SIZES}
    for library in LIBRARIES:
        _assign(library, sorted(candidates.get(library, ())), splits)
    for examples in splits.values():
        examples.sort(key=lambda example: _hash(seed, example.id))
    return {split: splits[split] for split in ("train", "dev", "test")}


def opening(text: str, limit: int = OPENING_CHARACTERS) -> str:
    """Return the prose before the first section of a docstring, on one line, cut between words.

    >>> opening("Sort an array\\nin place.\\n\\nStable.\\n\\nParameters\\n----------\\na : array")
    'Sort an array in place. Stable.'
    """
    prose = ""
    for paragraph in text.split("\n\n"):
        if SECTION.match(paragraph) or len(prose) >= limit:
            break
        prose = f"{prose} {' '.join(paragraph.split())}".strip()
    return prose if len(prose) <= limit else prose[: limit + 1].rpartition(" ")[0]


def _candidates(documents: Iterable[Document], seed: int) -> dict[str, list[_Candidate]]:
    """Return one candidate per normalised text, by library; leaves out texts that several libraries share."""
    by_text: dict[str, dict[str, _Candidate]] = defaultdict(dict)
    for document in documents:
        library, text = document.title, opening(document.text)
        if library in LIBRARIES and len(text) >= MINIMUM_CHARACTERS:
            candidate = _Candidate(_hash(seed, document.id), document.id, text)
            same = by_text[normalize(text)]
            same[library] = min(candidate, same.get(library, candidate))
    found: dict[str, list[_Candidate]] = defaultdict(list)
    for same in by_text.values():
        if len(same) == 1:
            [(library, candidate)] = same.items()
            found[library].append(candidate)
    return found


def _assign(library: str, candidates: list[_Candidate], splits: dict[str, list[Example]]) -> None:
    needed = sum(SPLIT_SIZES.values())
    if len(candidates) < needed:
        raise InputError(
            f"the docstrings task needs {needed} different texts of {library}, found {len(candidates)}",
            hint="is the library installed with its .py files?",
        )
    start = 0
    for split, size in SPLIT_SIZES.items():
        for candidate in candidates[start : start + size]:
            splits[split].append(Example(candidate.id, candidate.text, library))
        start += size


def _hash(seed: int, identifier: str) -> str:
    return hashlib.sha256(f"{seed}:{identifier}".encode()).hexdigest()
