"""The typed records that travel between stages."""

from __future__ import annotations

from dataclasses import dataclass

Label = str | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled row of a task.

    `label` is a class name (types `text` and `pair`), a number (`regression`), the sorted names of all labels that
    hold (`multilabel`) or one tag per token (`token_classification`; `tokens` then holds the tokens and `text` is their join by
    blanks). `part` names the test set of a row where there are several.
    `row` is the row's 1-based number in `path`, for messages; `id` is stable across runs.
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
    """One passage of a corpus. `id` is unique inside the corpus and stable across runs.

    `links` are the places of hyperlinks in the text, in characters; only where a corpus is read for them.
    """

    id: str
    text: str
    source: str
    title: str | None = None
    license: str | None = None
    links: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Selected:
    """A kept passage with the answer to "why is this text in my training set?".

    `rank` is its best rank over all examples that asked for it, `score` the score it had there; of selectors with an
    order of their own, the rank and score they gave it;
    `matched_count` says how many examples asked, `matched_queries` names the best of them, best first;
    `reason` is the rule that kept it.
    """

    document: Document
    position: int
    rank: int
    score: float
    matched_count: int
    matched_queries: tuple[str, ...]
    reason: str
