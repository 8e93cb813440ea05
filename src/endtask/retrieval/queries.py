"""Task texts as queries: entity markers removed, long texts shortened to what counts, equal queries merged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar

from endtask.config import ColumnSettings, RetrieveSettings
from endtask.records import Example
from endtask.retrieval.rake import key_phrases
from endtask.retrieval.unlabelled import Unlabelled, read_unlabelled
from endtask.retrieval.words import words_of
from endtask.task import Task, remove_entity_markers

QueryMode = Literal["auto", "full", "rake", "idf"]

LONG_TEXT = 150
"""Words beyond which `auto` asks with key phrases, as TLM does for its longest texts: sentences and short paragraphs
ask whole, reviews and articles do not."""

_Word = TypeVar("_Word", bound=Hashable)


@dataclass(frozen=True)
class Query:
    """One query and the examples that ask it.

    `text` is the query's words with single blanks between, repeats included; `labels` are the distinct classes of
    the examples, in the order of asking: none for unlabelled texts, scores and tags.
    """

    text: str
    example_ids: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words in order; one that stands twice counts twice."""
        return self.text.split(" ")


@dataclass(frozen=True)
class TaskQueries:
    """All that a task asks, and the count of texts that do not: without any word, or held back by the contamination filter."""

    queries: list[Query]
    without_words: int
    unlabelled: Unlabelled

    def counts(self) -> dict[str, int]:
        """The numbers for a manifest."""
        return {
            "queries": len(self.queries),
            "texts_without_words": self.without_words,
            "unlabelled_texts": len(self.unlabelled.examples),
            "unlabelled_texts_in_dev_or_test": self.unlabelled.held_back,
        }


def task_queries(task: Task, settings: RetrieveSettings, columns: ColumnSettings | None = None) -> TaskQueries:
    """The queries of a task's train texts and of its unlabelled texts, which are read here.

    Mode `idf` asks with the full texts until document frequencies are known; `keep_rarest` then shortens them.
    """
    unlabelled = Unlabelled()
    if settings.unlabelled is not None:
        is_contaminated = chain(task.splits.get("dev", ()), task.splits.get("test", ()))
        unlabelled = read_unlabelled(settings.unlabelled, is_contaminated, columns)
    examples = (*task.train, *unlabelled.examples)
    queries = build_queries(examples, mode=settings.query, query_words=settings.query_words)
    asking = sum(len(query.example_ids) for query in queries)
    return TaskQueries(queries, len(examples) - asking, unlabelled)


def build_queries(examples: Iterable[Example], *, mode: QueryMode = "full", query_words: int = 64) -> list[Query]:
    """One query per distinct text, in the order of the examples; examples without any word ask nothing.

    >>> build_queries([Example("1", "<< EGFR >> binds", "yes"), Example("2", "EGFR binds!", "no")])
    [Query(text='egfr binds', example_ids=('1', '2'), labels=('yes', 'no'))]
    """
    return _merge(_query(example, mode, query_words) for example in examples)


def keep_rarest(queries: Iterable[Query], document_frequency: Callable[[str], int], query_words: int) -> list[Query]:
    """Each query with its rarest words only; queries that have become equal are merged."""
    shortened = ((" ".join(rarest_words(query.words, document_frequency, query_words)), query) for query in queries)
    return _merge(Query(text, query.example_ids, query.labels) for text, query in shortened)


def rarest_words(words: Sequence[_Word], document_frequency: Callable[[_Word], int], count: int) -> list[_Word]:
    """The `count` distinct words of highest idf, in their order and as often as they stand there.

    Of equally rare words the earlier stay. Words that no document has find nothing, so they are the first to go.

    >>> frequency = {"the": 90, "sodium": 4, "channel": 7, "xyzzy": 0}
    >>> rarest_words("the sodium channel and the xyzzy sodium".split(), lambda word: frequency.get(word, 0), 2)
    ['sodium', 'channel', 'sodium']
    """
    frequencies = {word: document_frequency(word) for word in words}
    # Sorting is stable, and a dictionary keeps the order of first occurrence.
    rarest = set(sorted(frequencies, key=lambda word: (frequencies[word] == 0, frequencies[word]))[:count])
    return [word for word in words if word in rarest]


def papers_top_k(examples: int, large_scale: bool = False) -> int:
    """TLM's number of passages per example (Table B.1): the fewer the examples, the more each asks for.

    >>> papers_top_k(4169), papers_top_k(4169, large_scale=True)
    (5000, 10000)
    """
    scale = 2 if large_scale else 1
    if examples < 5_000:
        return scale * 5_000
    return scale * (50 if examples > 100_000 else 500)


def _query(example: Example, mode: QueryMode, query_words: int) -> Query:
    parts = (remove_entity_markers(part) for part in (example.text, example.text_pair) if part)
    # A blank line, so that no key phrase runs from one text into the other.
    words = _asked_words("\n\n".join(parts), mode, query_words)
    is_class = isinstance(example.label, str) and example.label != ""
    return Query(" ".join(words), (example.id,), (str(example.label),) if is_class else ())


def _asked_words(text: str, mode: QueryMode, query_words: int) -> list[str]:
    words = words_of(text)
    if mode == "rake" or (mode == "auto" and len(words) > LONG_TEXT):
        # Of words joined by "-" or "'", retrieval sees the parts.
        best = [word for phrase, _ in key_phrases(text, count=query_words) for word in words_of(phrase)]
        return (best or words)[:query_words]
    return words


def _merge(queries: Iterable[Query]) -> list[Query]:
    """One query for all that have the same words; those without any word are left out."""
    equal: dict[str, list[Query]] = {}
    for query in queries:
        if query.text:
            equal.setdefault(query.text, []).append(query)
    return [group[0] if len(group) == 1 else _merged(text, group) for text, group in equal.items()]


def _merged(text: str, group: list[Query]) -> Query:
    ids = chain.from_iterable(query.example_ids for query in group)
    labels = dict.fromkeys(chain.from_iterable(query.labels for query in group))
    return Query(text, tuple(ids), tuple(labels))
