"""Whether a model answers all rows alike, which a score does not show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from endtask.reporting.run_folder import RunFolder

_NEARLY = 0.01  # of the range of the true scores
_GOT = {"tags": "the same tag", "score": "nearly the same score", "labels": "the same labels"}

Things = set[Any]


def same_answer(run: RunFolder) -> str | None:
    """A sentence where models of the run answered all rows alike; None where none did, or the rows are alike.

    Worked out from the predictions, so that runs of older versions are told of too.
    """
    if run.results is None or run.audit is None:
        return None
    kind = str(run.audit["kind"])
    truth, given = _met(run.predictions(), kind)
    alike = [things for things in given.values() if len(truth) > 1 and _are_alike(things, truth, kind)]
    if not alike:
        return None
    every = "Every" if len(given) == 1 else f"With {len(alike)} of {len(given)} seeds every"
    what, got = "token" if kind == "tags" else "row", _GOT.get(kind, "the same answer")
    answers = " or ".join(dict.fromkeys(_in_words(things, kind) for things in alike))
    meaning = "hardly tells" if kind == "score" else "has learned nothing that tells"
    return f"{every} {what} of {run.results['split']} got {got}, {answers}: the model {meaning} them apart."


def _met(rows: Iterable[Mapping[str, Any]], kind: str) -> tuple[Things, dict[str, Things]]:
    """What occurs among the right answers, and among those of each seed."""
    truth: Things = set()
    given: dict[str, Things] = {}
    for row in rows:
        truth.update(_things(row["label"], kind))
        for seed, answer in row["predicted"].items():
            given.setdefault(seed, set()).update(_things(answer, kind))
    return truth, given


def _things(answer: Any, kind: str) -> Iterable[Any]:
    """What is compared: a row's tags one by one, its labels as a whole, its class, its score."""
    if kind == "tags":
        return list(answer)
    return [tuple(sorted(answer))] if kind == "labels" else [answer]


def _are_alike(things: Collection[Any], truth: Collection[Any], kind: str) -> bool:
    if kind == "score":
        return bool(max(things) - min(things) <= _NEARLY * (max(truth) - min(truth)))
    return len(things) == 1


def _in_words(things: Collection[Any], kind: str) -> str:
    """The one answer.

    >>> _in_words({("a", "b")}, "labels"), _in_words({()}, "labels"), _in_words({2.4121, 2.4123}, "score")
    ("'a', 'b'", 'none', 'about 2.41')
    """
    if kind == "score":
        return f"about {(max(things) + min(things)) / 2:.3g}"
    (answer,) = things
    return (", ".join(map(repr, answer)) or "none") if kind == "labels" else repr(answer)
