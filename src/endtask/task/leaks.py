"""Rows to be judged by whose text is learned: it stands in train of their own task, or of another on the same encoder."""

from __future__ import annotations

from collections.abc import Iterable

from endtask.records import Example
from endtask.task.normalize import normalized_key, normalized_texts
from endtask.task.task import Task

Sign = tuple[str, frozenset[str]]
"""Something by which rows of two tasks know each other: what it is of a row, and the texts."""


def leaked_ids(task: Task, split: str = "test", *, beside: Iterable[Task] = ()) -> frozenset[str]:
    """The ids of a split's examples whose normalised text (and second text) stands in train.

    The leak-free score is taken over the other examples. Verbatim copies are always among these. Train of the task's
    auxiliary tasks counts too, and that of tasks `beside` it.
    """
    known = {normalized_key(example) for example in task.train}
    others = {sign for one in (*task.auxiliary.values(), *beside) for row in one.train for sign in learned_signs(row)}
    return frozenset(
        example.id
        for example in task.splits.get(split, ())
        if normalized_key(example) in known or (others and not others.isdisjoint(asked_signs(example)))
    )


def learned_signs(example: Example) -> set[Sign]:
    """What a train row of one task may give away of rows of another: its text, or its pair and either side of it."""
    texts = normalized_texts(example)
    if len(texts) == 1:
        return {("text", frozenset(texts))}
    return {("pair", frozenset(texts)), *(("side", frozenset({text})) for text in texts)}


def asked_signs(example: Example) -> set[Sign]:
    """What gives a row away: a text by itself or as a side of a pair, a pair as a whole or by the text of either side.

    Pairs that share one side are not the same: an aspect or a question may stand beside every text of a task.
    """
    texts = normalized_texts(example)
    if len(texts) == 1:
        return {("text", frozenset(texts)), ("side", frozenset(texts))}
    return {("pair", frozenset(texts)), *(("text", frozenset({text})) for text in texts)}
