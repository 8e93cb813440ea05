"""The records that stages exchange: labelled examples, passages and selected passages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

Label = str | float | tuple[str, ...]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled row of a task.

    `label` is a class name (task types `text` and `pair`), a number (`regression`), the sorted names of the labels
    (`multilabel`) or one tag per token (`token_classification`; `text` is then `tokens` joined by blanks). `part` names
    the test set of a row if there are several. `row` is the row's 1-based number in `path`, for messages; `id` is
    stable across runs.
    """

    id: str
    text: str
    label: Label
    text_pair: str | None = None
    tokens: tuple[str, ...] | None = None
    group: str | None = None
    path: str = ""
    row: int = 0
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A passage of a corpus. `id` is unique inside the corpus and stable across runs.

    `links` are the character spans of hyperlinks, if the corpus was read with links.
    """

    id: str
    text: str
    source: str
    title: str | None = None
    license: str | None = None
    links: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Selected:
    """A selected passage with the answer to "why is this text in my training set?".

    `rank` is its best rank over all queries that it matches, and `score` its score for that query; selectors with an
    order of their own set both. `matched_count` is the number of examples whose query it matches, `matched_queries`
    names the best of them, best first. `reason` is the rule that selected it.
    """

    document: Document
    position: int
    rank: int
    score: float
    matched_count: int
    matched_queries: tuple[str, ...]
    reason: str


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items, the last of which may be shorter; `itertools.batched` of Python 3.12.

    >>> list(batched("abc", 2))
    [['a', 'b'], ['c']]
    """
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch
