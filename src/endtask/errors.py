"""The error for wrong user input, with its one-line message and nearest right spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

_SHORTEST_PART = 3


class InputError(Exception):
    """Wrong user input: printed as one line, exit code 2, nothing written.

    >>> print(InputError("not valid JSON", path="train.jsonl", row=3, hint="one object per line"))
    train.jsonl, row 3: not valid JSON (one object per line)
    """

    def __init__(
        self,
        message: str,
        *,
        path: object = None,
        row: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        location = ", ".join(
            part
            for part in (
                str(path) if path is not None else "",
                f"row {row}" if row is not None else "",
                f"key {key!r}" if key is not None else "",
            )
            if part
        )
        line = f"{location}: {message}" if location else message
        super().__init__(f"{line} ({hint})" if hint else line)
        self.message, self.path, self.row, self.key, self.hint = message, path, row, key, hint


class TrainingError(InputError):
    """Training cannot continue with these settings: the loss is not finite, or memory runs out; others may work."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice closest in spelling to `word`, or None if nothing is close.

    >>> nearest("learnin_rate", ["learning_rate", "seed"])
    'learning_rate'
    """
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean_path(path: Path, names: Iterable[str]) -> str | None:
    """Return a hint with the sibling of a missing file or folder whose name is closest.

    >>> did_you_mean_path(Path("runs/chemprto"), ["chemprot", "sciie"])
    "did you mean 'runs/chemprot'?"
    """
    close = nearest(path.name, sorted(names))
    return f"did you mean {str(path.with_name(close))!r}?" if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return a hint with the nearest right spelling, or the only choice that contains the word, or else all choices.

    >>> did_you_mean("craft", ["craft_pmc_fulltext", "wikipedia"])
    "did you mean 'craft_pmc_fulltext'?"
    """
    known = sorted(choices)
    close = nearest(word, known) or _only_match(word, known)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(known)}"


def _only_match(word: str, choices: Sequence[str]) -> str | None:
    """Return the only choice that begins with a word, or else the only one that contains it; None if there are several.

    Fewer than three letters occur in many names by chance.
    """
    part = word.lower()
    if len(part) < _SHORTEST_PART:
        return None
    starting = [choice for choice in choices if choice.lower().startswith(part)]
    matches = starting or [choice for choice in choices if part in choice.lower()]
    return matches[0] if len(matches) == 1 else None


def a_few(words: Iterable[str], most: int) -> str:
    """Return the first `most` words, and dots if there are more.

    >>> a_few(["a", "b"], 2), a_few(["a", "b", "c"], 2)
    ('a, b', 'a, b, ...')
    """
    listed = list(words)
    return ", ".join(listed[:most]) + (", ..." if len(listed) > most else "")
