"""Whether a model answers all rows alike, which a score does not show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from endtask.registry import task_types
from endtask.reporting.run_folder import RunFolder

_NEARLY = 0.01  # of the range of the true scores
_GOT = {"tags": "the same tag", "numbers": "nearly the same score", "label_sets": "the same labels"}

Things = set[Any]


def same_answer(run: RunFolder) -> str | None:
    """A sentence where models of the run answered all rows alike; None where none did, or the rows are alike.

    Worked out from the predictions, so that runs of older versions are told of too.
    """
    if run.results is None or run.audit is None:
        return None
    form = str(task_types.get(run.audit["type"]).form)
    truth, given = _met(run.predictions(), form)
    alike = [things for things in given.values() if len(truth) > 1 and _are_alike(things, truth, form)]
    if not alike:
        return None
    every = "Every" if len(given) == 1 else f"With {len(alike)} of {len(given)} seeds every"
    what, got = "token" if form == "tags" else "row", _GOT.get(form, "the same answer")
    answers = " or ".join(dict.fromkeys(_in_words(things, form) for things in alike))
    meaning = "hardly tells" if form == "numbers" else "has learned nothing that tells"
    return f"{every} {what} of {run.results['split']} got {got}, {answers}: the model {meaning} them apart."


def _met(rows: Iterable[Mapping[str, Any]], form: str) -> tuple[Things, dict[str, Things]]:
    """What occurs among the right answers, and among those of each seed."""
    truth: Things = set()
    given: dict[str, Things] = {}
    for row in rows:
        truth.update(_things(row["label"], form))
        for seed, answer in row["predicted"].items():
            given.setdefault(seed, set()).update(_things(answer, form))
    return truth, given


def _things(answer: Any, form: str) -> Iterable[Any]:
    """What is compared: a row's tags one by one, its labels as a whole, its class, its score."""
    if form == "tags":
        return list(answer)
    return [tuple(sorted(answer))] if form == "label_sets" else [answer]


def _are_alike(things: Collection[Any], truth: Collection[Any], form: str) -> bool:
    if form == "numbers":
        return bool(max(things) - min(things) <= _NEARLY * (max(truth) - min(truth)))
    return len(things) == 1


def _in_words(things: Collection[Any], form: str) -> str:
    """The one answer.

    >>> _in_words({("a", "b")}, "label_sets"), _in_words({()}, "label_sets"), _in_words({2.4121, 2.4123}, "numbers")
    ("'a', 'b'", 'none', 'about 2.41')
    """
    if form == "numbers":
        return f"about {(max(things) + min(things)) / 2:.3g}"
    (answer,) = things
    return (", ".join(map(repr, answer)) or "none") if form == "label_sets" else repr(answer)
