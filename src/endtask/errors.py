"""The one kind of error a user may cause, and how its single line is put together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

_LEAST_PART = 3


class InputError(Exception):
    """Something the user gave is wrong: shown as one line, exit code 2, nothing written.

    >>> print(InputError("not valid JSON", path="train.jsonl", row=3, hint="one object per line"))
    train.jsonl, row 3: not valid JSON (one object per line)
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        row: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        place = ", ".join(
            part
            for part in (
                str(path) if path is not None else "",
                f"row {row}" if row is not None else "",
                f"key {key!r}" if key is not None else "",
            )
            if part
        )
        line = f"{place}: {message}" if place else message
        super().__init__(f"{line} ({hint})" if hint else line)
        self.message, self.path, self.row, self.key, self.hint = message, path, row, key, hint


class TrainingError(InputError):
    """Training cannot go on with these settings (its loss stays broken, its memory runs out); others may still do."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice closest in spelling to `word`, or None when nothing is close.

    >>> nearest("learnin_rate", ["learning_rate", "seed"])
    'learning_rate'
    """
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean_beside(path: Path, names: Iterable[str]) -> str | None:
    """A hint naming the file or folder beside one that is not there whose name comes closest.

    >>> did_you_mean_beside(Path("runs/chemprto"), ["chemprot", "sciie"])
    "did you mean 'runs/chemprot'?"
    """
    close = nearest(path.name, sorted(names))
    return f"did you mean {str(path.with_name(close))!r}?" if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint naming the nearest right spelling, or the one choice that holds the word, or else all of the choices.

    >>> did_you_mean("craft", ["craft_pmc_fulltext", "wikipedia"])
    "did you mean 'craft_pmc_fulltext'?"
    """
    known = sorted(choices)
    close = nearest(word, known) or _only_holder(word, known)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(known)}"


def _only_holder(word: str, choices: Sequence[str]) -> str | None:
    """The one choice that begins with a word, or else the one that has it inside; None where there are several.

    Fewer than three letters stand in many names by chance.
    """
    part = word.lower()
    if len(part) < _LEAST_PART:
        return None
    begun = [choice for choice in choices if choice.lower().startswith(part)]
    holders = begun or [choice for choice in choices if part in choice.lower()]
    return holders[0] if len(holders) == 1 else None


def a_few(words: Iterable[str], most: int) -> str:
    """The first of many words, and dots where there are more.

    >>> a_few(["a", "b"], 2), a_few(["a", "b", "c"], 2)
    ('a, b', 'a, b, ...')
    """
    listed = list(words)
    return ", ".join(listed[:most]) + (", ..." if len(listed) > most else "")
