"""Words that tell a class: those with the highest pointwise mutual information with it in the train rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

from endtask.records import Example
from endtask.retrieval.words import words_of

MOST_WORDS = 50
"""For each class."""
LEAST_ROWS = 5
"""A word must stand in so many rows of its class: in fewer, chance alone makes words that only one class has."""


def label_words(examples: Sequence[Example]) -> dict[str, tuple[str, ...]]:
    """For each class its words, the most telling first: log p(word, class) / (p(word) p(class)) over rows.

    Only words count that reach half of what a word would have that no other class has; else small classes, which have
    few words of their own, would fill up with the language's commonest.
    Of equally telling words the one in more rows comes first, then by the alphabet. Labels that are no class names have
    no words.

    >>> rows = [Example("", f"{word} the", label) for word, label in (("goal", "sport"), ("gene", "biology"))]
    >>> label_words(rows * 5)
    {'sport': ('goal',), 'biology': ('gene',)}
    """
    rows = Counter(example.label for example in examples if isinstance(example.label, str))
    inside: dict[str, Counter[str]] = {str(label): Counter() for label in rows}
    everywhere: Counter[str] = Counter()
    for example in examples:
        if isinstance(example.label, str):
            words = {*words_of(example.text), *words_of(example.text_pair or "")}
            inside[example.label].update(words)
            everywhere.update(words)
    return {label: _best(found, everywhere, rows[label], rows.total()) for label, found in inside.items()}


def _best(found: Counter[str], everywhere: Counter[str], rows: int, total: int) -> tuple[str, ...]:
    """`found` and `rows` are those of the class."""

    def is_telling(word: str) -> bool:
        inside, anywhere = found[word], everywhere[word]
        above_chance = inside * total > anywhere * rows
        # Half of the most in logarithms is its root: (inside / anywhere / share) ** 2 >= 1 / share, in whole numbers.
        return inside >= LEAST_ROWS and above_chance and inside**2 * total >= anywhere**2 * rows

    def place(word: str) -> tuple[float, int, str]:
        return -log(found[word] / everywhere[word] / (rows / total)), -found[word], word

    return tuple(sorted(filter(is_telling, found), key=place)[:MOST_WORDS])
