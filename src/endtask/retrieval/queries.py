"""Task texts as queries: removes entity markers, shortens long texts, merges equal queries.

Unlabelled texts of the task (`retrieve.unlabelled`) are queries too, except those that are in dev or test.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from endtask.config import ColumnSettings, RetrieveSettings
from endtask.corpus.reading import text_cell, text_column
from endtask.corpus.sources import find_files, is_text_file
from endtask.errors import InputError
from endtask.io.tables import Row, read_lines, read_rows
from endtask.records import Example
from endtask.retrieval.words import LETTER, character_classes, fold, words_of
from endtask.task import Task, normalize, remove_entity_markers
from endtask.task.columns import Columns, find_columns

QueryMode = Literal["auto", "full", "rake"]

LONG_TEXT = 150
"""Words beyond which `auto` uses key phrases, as TLM does for its longest texts (reviews and articles)."""
QUERY_WORDS = 64
"""Words of a query of key phrases."""
_KEY = "retrieve.unlabelled"


@dataclass(frozen=True)
class Query:
    """A query and its examples.

    `text` is the query's words, repeats included, separated by single blanks.
    """

    text: str
    example_ids: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The words in order, repeats included."""
        return self.text.split(" ")


@dataclass(frozen=True)
class TaskQueries:
    """The queries of a task, the number of texts without any word, and the unlabelled texts."""

    queries: list[Query]
    without_words: int
    unlabelled: Unlabelled

    def counts(self) -> dict[str, int]:
        """Return the counts for a manifest."""
        return {
            "queries": len(self.queries),
            "texts_without_words": self.without_words,
            "unlabelled_texts": len(self.unlabelled.examples),
            "unlabelled_texts_in_dev_or_test": self.unlabelled.held_back,
        }


def task_queries(task: Task, settings: RetrieveSettings, columns: ColumnSettings | None = None) -> TaskQueries:
    """Build the queries of a task's train texts and of its unlabelled texts, which are read here."""
    unlabelled = Unlabelled()
    if settings.unlabelled is not None:
        held_out = chain(task.splits.get("dev", ()), task.splits.get("test", ()))
        unlabelled = read_unlabelled(settings.unlabelled, held_out, columns)
    examples = (*task.train, *unlabelled.examples)
    queries = build_queries(examples, mode=settings.query)
    with_words = sum(len(query.example_ids) for query in queries)
    return TaskQueries(queries, len(examples) - with_words, unlabelled)


def build_queries(
    examples: Iterable[Example], *, mode: QueryMode = "full", query_words: int = QUERY_WORDS
) -> list[Query]:
    """Return one query per distinct text, in the order of the examples; skips examples without any word.

    >>> build_queries([Example("1", "<< EGFR >> binds", "yes"), Example("2", "EGFR binds!", "no")])
    [Query(text='egfr binds', example_ids=('1', '2'))]
    """
    equal: dict[str, list[str]] = {}
    for example in examples:
        parts = (remove_entity_markers(part) for part in (example.text, example.text_pair) if part)
        # A blank line, so that no key phrase runs from one text into the other.
        if words := _words_of_query("\n\n".join(parts), mode, query_words):
            equal.setdefault(" ".join(words), []).append(example.id)
    return [Query(text, tuple(ids)) for text, ids in equal.items()]


def papers_top_k(examples: int, requested: int | str = "auto") -> int:
    """Return TLM's passages per example (Table B.1), `auto_large` for its large scale; numbers stay as they are.

    >>> papers_top_k(4169), papers_top_k(4169, "auto_large"), papers_top_k(4169, 3)
    (5000, 10000, 3)
    """
    if isinstance(requested, int):
        return requested
    scale = 2 if requested == "auto_large" else 1
    if examples < 5_000:
        return scale * 5_000
    return scale * (50 if examples > 100_000 else 500)


def _words_of_query(text: str, mode: QueryMode, query_words: int) -> list[str]:
    words = words_of(text)
    if mode == "rake" or (mode == "auto" and len(words) > LONG_TEXT):
        # Retrieval splits words that are joined by "-" or "'".
        best = [word for phrase, _ in key_phrases(text, count=query_words) for word in words_of(phrase)]
        return (best or words)[:query_words]
    return words


@dataclass(frozen=True)
class Unlabelled:
    """Unlabelled texts as examples with an empty label, and the number that dev or test contains too."""

    examples: tuple[Example, ...] = ()
    held_back: int = 0


def read_unlabelled(path: str, held_out: Iterable[Example], columns: ColumnSettings | None = None) -> Unlabelled:
    """Read a file of texts (or a folder, or a glob), except those of the held-out examples.

    A table is read by the task's column names where it has them, else by the usual names; each line of a text file is
    a text. Ids are `unlabelled/<row>`, or `unlabelled/<file>#<row>` where there are several files.
    """
    if not path.strip():
        raise InputError("the path is empty", key=_KEY)
    forbidden = {normalize(text) for example in held_out for text in _forms(example)} - {""}
    read = list(_read_all(path, columns or ColumnSettings()))
    if not read:
        raise InputError("contains no text", path=path, key=_KEY)
    free = tuple(example for example in read if forbidden.isdisjoint(map(normalize, _forms(example))))
    return Unlabelled(free, len(read) - len(free))


def _forms(example: Example) -> list[str]:
    """Return the texts of an example that may occur elsewhere: its text, its second text, both together."""
    if not example.text_pair:
        return [example.text]
    return [example.text, example.text_pair, f"{example.text} {example.text_pair}"]


def _read_all(path: str, named: ColumnSettings) -> Iterator[Example]:
    found = find_files(path)
    for file in found.paths:
        prefix = "unlabelled/" if len(found.paths) == 1 else f"unlabelled/{found.label(file)}#"
        for number, text, pair in _lines(file) if is_text_file(file) else _table(file, named):
            yield Example(f"{prefix}{number}", text, "", text_pair=pair, path=str(file), row=number)


def _lines(path: Path) -> Iterator[tuple[int, str, None]]:
    return ((number, line, None) for number, line in read_lines(path) if line.strip())


def _table(path: Path, named: ColumnSettings) -> Iterator[tuple[int, str, str | None]]:
    columns: Columns | None = None
    for number, row in read_rows(path):
        columns = columns or _columns(row, named, path)
        text = _cell(row, columns.text or columns.tokens or "", path, number)
        pair = columns.text_pair if row.get(columns.text_pair or "") is not None else None
        yield number, text, _cell(row, pair, path, number) if pair else None


def _columns(row: Row, named: ColumnSettings, path: Path) -> Columns:
    """Find the columns of text; these are other files than the task's, so its column names are optional."""
    present = list(row)
    given = {role: name for role, name in named.model_dump().items() if name in present}
    found = find_columns(present, ColumnSettings(**given), str(path))
    if found.text is not None or found.tokens is not None:
        return found
    return Columns(text=text_column(row, None, path=path, key=_KEY, hint="name it 'text', or as in task.columns.text"))


def _cell(row: Row, column: str, path: Path, number: int) -> str:
    """Return a cell's text; joins a list of tokens by blanks."""
    value: Any = row.get(column)
    if isinstance(value, list) and all(isinstance(token, str) for token in value):
        return " ".join(value)
    return text_cell(row, column, path=path, row_number=number)


# Key phrases by RAKE (Rose, Engel, Cramer and Cowley 2010, "Automatic keyword extraction from individual documents"):
# runs of words between stop words and punctuation, scored by the words that occur with theirs.

Words = tuple[str, ...]
Link = tuple[Words, Words, Words]
"""Two candidates that adjoin, with the stop words between them."""

_SHORT_FORM = re.compile(r"(?:n't|'(?:s|m|d|re|ve|ll))\b")
# What may stand between two words of a phrase: blanks, with one line end at most; inside a word, "'" or "-".
_JOINT = r"(?:['-]|[^\S\n]+(?:\n[^\S\n]*)?|\n[^\S\n]*)"


@cache
def english_stop_words() -> frozenset[str]:
    """Scikit-learn's list. It is read late: a task of short texts needs no key phrases."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def key_phrases(
    text: str, *, count: int | None = None, stop_words: AbstractSet[str] | None = None
) -> list[tuple[str, float]]:
    """The best phrases of a text with their scores; by default a third as many as there are distinct words.

    `stop_words`: English ones by default.

    >>> key_phrases("Fast retrieval of short passages, and retrieval without an index", count=2)
    [('short passages', 4.0), ('fast retrieval', 3.5)]
    """
    candidates, links = find_candidates(text, english_stop_words() if stop_words is None else stop_words)
    if count is None:
        count = round(len({word for words in candidates for word in words}) / 3)
    return [(" ".join(words), score) for words, score in rank_candidates(candidates, links)[:count]]


def find_candidates(text: str, stop_words: AbstractSet[str]) -> tuple[list[Words], list[Link]]:
    """The runs of words between stop words and punctuation, in order, and the pairs that only stop words separate.

    >>> find_candidates("The axis of evil: a phrase", {"the", "of", "a"})
    ([('axis',), ('evil',), ('phrase',)], [(('axis',), ('of',), ('evil',))])
    """
    candidates: list[Words] = []
    links: list[Link] = []
    for segment in _segments(text):
        runs = [(stop, tuple(words)) for stop, words in groupby(segment.split(), stop_words.__contains__)]
        candidates += (words for stop, words in runs if not stop)
        triples = zip(runs, runs[1:], runs[2:], strict=False)
        links += ((first, between, second) for (_, first), (stop, between), (_, second) in triples if stop)
    return candidates, links


def rank_candidates(candidates: Sequence[Words], links: Iterable[Link] = ()) -> list[tuple[Words, float]]:
    """Distinct candidates and the pairs linked at least twice, best first; of equals the one met first, pairs last.

    >>> rank_candidates([("linear", "constraints"), ("set",), ("minimal", "set")])
    [(('linear', 'constraints'), 4.0), (('minimal', 'set'), 3.5), (('set',), 1.5)]
    """
    scores = _word_scores(candidates)
    # Rounded, so that the same numbers added in another order stay equal.
    ranked = {words: round(sum(map(scores.__getitem__, words)), 9) for words in candidates}
    linked = [link for link, times in Counter(links).items() if times > 1]
    pairs = {first + between + second: round(ranked[first] + ranked[second], 9) for first, between, second in linked}
    return sorted((ranked | pairs).items(), key=lambda item: -item[1])


def _word_scores(candidates: Iterable[Words]) -> dict[str, float]:
    """Degree over frequency: the mean length of the candidates that a word stands in."""
    frequency: defaultdict[str, int] = defaultdict(int)
    degree: defaultdict[str, int] = defaultdict(int)
    for words in candidates:
        for word in words:
            frequency[word] += 1
            degree[word] += len(words)
    return {word: degree[word] / times for word, times in frequency.items()}


def _segments(text: str) -> list[str]:
    """The stretches of a text that no punctuation interrupts; "dog's" is read as "dog", and "isn't" as "is"."""
    # An underscore counts as a letter for regular expressions, but is none.
    folded = _SHORT_FORM.sub("", fold(text).replace("’", "'").replace("_", "|"))
    return (_ASCII_SEGMENT if folded.isascii() else _any_segment()).findall(folded)


def _segment_pattern(letters: str) -> re.Pattern[str]:
    return re.compile(f"[{letters}]+(?:{_JOINT}[{letters}]+)*")


_ASCII_SEGMENT = _segment_pattern("a-z0-9")


@cache
def _any_segment() -> re.Pattern[str]:
    # Regular expressions do not count marks, such as the vowel signs of Hindi, as letters.
    letters = map(chr, np.flatnonzero(character_classes() == LETTER).tolist())
    return _segment_pattern(r"\w" + "".join(letter for letter in letters if not letter.isalnum()))
