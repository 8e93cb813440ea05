"""Turn task texts into queries: remove entity markers, shorten long texts, merge equal queries."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Literal

import numpy as np

from endtask.records import Example
from endtask.retrieval.words import LETTER, character_classes, fold, words_of
from endtask.task import remove_entity_markers

QueryMode = Literal["auto", "full", "rake"]

LONG_TEXT = 150
"""The mode `auto` uses key phrases for texts with more words, like TLM for its longest texts (reviews and articles)."""
QUERY_WORDS = 64
"""The most words of a query of key phrases."""

Words = tuple[str, ...]
Link = tuple[Words, Words, Words]
"""Two neighboring candidates with the stop words between them."""

_SHORT_FORM = re.compile(r"(?:n't|'(?:s|m|d|re|ve|ll))\b")
# Between two words of a phrase: blanks with at most one line end. Inside a word: "'" or "-".
_JOINT = r"(?:['-]|[^\S\n]+(?:\n[^\S\n]*)?|\n[^\S\n]*)"


@dataclass(frozen=True)
class Query:
    """A query and its examples; `text` holds the query's words, repeats included, separated by single blanks."""

    text: str
    example_ids: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The words in order, repeats included."""
        return self.text.split(" ")


def build_queries(
    examples: Iterable[Example], *, mode: QueryMode = "full", query_words: int = QUERY_WORDS
) -> list[Query]:
    """Return a query for each distinct text, in the order of the examples; examples without a word are skipped.

    >>> build_queries([Example("1", "<< EGFR >> binds", "yes"), Example("2", "EGFR binds!", "no")])
    [Query(text='egfr binds', example_ids=('1', '2'))]
    """
    ids_of: dict[str, list[str]] = {}
    for example in examples:
        parts = (remove_entity_markers(part) for part in (example.text, example.text_pair) if part)
        # The blank line keeps key phrases from spanning both texts.
        if words := _words_of_query("\n\n".join(parts), mode, query_words):
            ids_of.setdefault(" ".join(words), []).append(example.id)
    return [Query(text, tuple(ids)) for text, ids in ids_of.items()]


def papers_top_k(examples: int, requested: int | str = "auto") -> int:
    """Return TLM's passages per example (Table B.1), with `auto_large` those of its large scale, or a given number.

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


# Key phrases by RAKE (Rose, Engel, Cramer and Cowley 2010, "Automatic keyword extraction from individual documents"):
# runs of words between stop words and punctuation, scored by the words that occur with theirs.


@cache
def english_stop_words() -> frozenset[str]:
    """Return scikit-learn's list, imported here since a task of short texts needs no key phrases."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def key_phrases(
    text: str, *, count: int | None = None, stop_words: AbstractSet[str] | None = None
) -> list[tuple[str, float]]:
    """Return the best phrases of a text with their scores; by default a third of the number of distinct words.

    `stop_words` are English by default.

    >>> key_phrases("Fast retrieval of short passages, and retrieval without an index", count=2)
    [('short passages', 4.0), ('fast retrieval', 3.5)]
    """
    candidates, links = find_candidates(text, english_stop_words() if stop_words is None else stop_words)
    if count is None:
        count = round(len({word for words in candidates for word in words}) / 3)
    return [(" ".join(words), score) for words, score in rank_candidates(candidates, links)[:count]]


def find_candidates(text: str, stop_words: AbstractSet[str]) -> tuple[list[Words], list[Link]]:
    """Return the runs of words between stop words and punctuation, and the pairs that only stop words separate.

    >>> find_candidates("The axis of evil: a phrase", {"the", "of", "a"})
    ([('axis',), ('evil',), ('phrase',)], [(('axis',), ('of',), ('evil',))])
    """
    candidates: list[Words] = []
    links: list[Link] = []
    for segment in _segments(text):
        runs = [(is_stop, tuple(words)) for is_stop, words in groupby(segment.split(), stop_words.__contains__)]
        candidates += (words for is_stop, words in runs if not is_stop)
        triples = zip(runs, runs[1:], runs[2:], strict=False)
        links += ((first, between, second) for (_, first), (is_stop, between), (_, second) in triples if is_stop)
    return candidates, links


def rank_candidates(candidates: Sequence[Words], links: Iterable[Link] = ()) -> list[tuple[Words, float]]:
    """Return distinct candidates and pairs linked at least twice with their scores, best first.

    Ties keep the order of occurrence, pairs last.

    >>> rank_candidates([("linear", "constraints"), ("set",), ("minimal", "set")])
    [(('linear', 'constraints'), 4.0), (('minimal', 'set'), 3.5), (('set',), 1.5)]
    """
    scores = _word_scores(candidates)
    # Rounded, so that sums of the same numbers in another order are equal.
    ranked = {words: round(sum(map(scores.__getitem__, words)), 9) for words in candidates}
    linked = [link for link, times in Counter(links).items() if times > 1]
    pairs = {first + between + second: round(ranked[first] + ranked[second], 9) for first, between, second in linked}
    return sorted((ranked | pairs).items(), key=lambda item: -item[1])


def _word_scores(candidates: Iterable[Words]) -> dict[str, float]:
    """Return degree over frequency of each word: the mean length of the candidates that contain it."""
    frequency: defaultdict[str, int] = defaultdict(int)
    degree: defaultdict[str, int] = defaultdict(int)
    for words in candidates:
        for word in words:
            frequency[word] += 1
            degree[word] += len(words)
    return {word: degree[word] / times for word, times in frequency.items()}


def _segments(text: str) -> list[str]:
    """Return the parts of a text between punctuation; "dog's" is read as "dog", and "isn't" as "is"."""
    # For regular expressions an underscore is a letter.
    folded = _SHORT_FORM.sub("", fold(text).replace("’", "'").replace("_", "|"))
    return (_ASCII_SEGMENT if folded.isascii() else _any_segment()).findall(folded)


def _segment_pattern(letters: str) -> re.Pattern[str]:
    return re.compile(f"[{letters}]+(?:{_JOINT}[{letters}]+)*")


_ASCII_SEGMENT = _segment_pattern("a-z0-9")


@cache
def _any_segment() -> re.Pattern[str]:
    # For regular expressions marks, such as the vowel signs of Hindi, are no letters.
    letters = map(chr, np.flatnonzero(character_classes() == LETTER).tolist())
    return _segment_pattern(r"\w" + "".join(letter for letter in letters if not letter.isalnum()))
