"""Make the task AD (acronym detection): is this the acronym of something in the text?

The rows come from annotated pairs of short and long forms; the short form is removed from the text. A true acronym
consists of initials of words of its long form. Every text has a true acronym and a false acronym of the same length: a
pseudo acronym (initials of other consecutive words, without stop words where possible) or a mutated one (the true
acronym with changed letters). False acronyms are drawn in proportion to how much likelier their letters are among true
acronyms than among false ones. Without these weights the initials of `of` and `the` would reveal most labels.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from endtask.evaluation.metrics.spans import spans_of
from endtask.io.tables import Row
from studies.concept_task import STOP_WORDS

SHORTEST, LONGEST = 2, 6
_WORD = re.compile(r"[^\W_]+")
_CLOSING = {"(": ")", "[": "]"}
_MUTATIONS = 200


@dataclass(frozen=True)
class Snippet:
    """A text without the short form `acronym` of `long_form`; `named` has the indices of words of any long form."""

    text: str
    acronym: str
    long_form: str
    doc: str
    words: tuple[str, ...]
    named: frozenset[int]

    @property
    def initials(self) -> str:
        """The first characters of all words, in capitals."""
        return "".join(word[0].upper() for word in self.words)


def offsets_of(tokens: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Return start and end of each token in the text.

    >>> offsets_of(["a", "(", "b", ")"], "a (b)")
    [(0, 1), (2, 3), (3, 4), (4, 5)]
    """
    offsets, end = [], 0
    for token in tokens:
        start = text.index(token, end)
        end = start + len(token)
        offsets.append((start, end))
    return offsets


def snippets_of(row: Row) -> Iterator[Snippet]:
    """Yield a snippet for each bracketed short form that follows its long form and consists of its initials."""
    tokens, spans = row["tokens"], spans_of(row["tags"], "bio")
    offsets = offsets_of(tokens, row["text"])
    longs = [(start, end) for tag, start, end in spans if tag == "long"]
    for tag, start, end in spans:
        if tag != "short" or end - start > 1 or not _is_plain(tokens[start]):
            continue
        opening, closing = (tokens[index] if 0 <= index < len(tokens) else "" for index in (start - 1, end))
        before = [span for span in longs if span[1] == start - 1]
        if before and closing and _CLOSING.get(opening) == closing:
            cut = (offsets[start - 2][1], offsets[end][1])
            long_form = row["text"][offsets[before[0][0]][0] : cut[0]]
            characters = [(offsets[first][0], offsets[last - 1][1]) for first, last in longs]
            if is_initials(acronym := singular(tokens[start]), long_form):
                yield _without(row, acronym, cut, characters, long_form)


def _is_plain(short: str) -> bool:
    return short.isascii() and short.isalpha() and SHORTEST <= len(short) <= LONGEST


def singular(short: str) -> str:
    """Return an acronym in capitals without the `s` of its plural.

    >>> singular("EPCs"), singular("pcr")
    ('EPC', 'PCR')
    """
    return short[:-1] if len(short) > SHORTEST and short.endswith("s") and short[:-1].isupper() else short.upper()


def is_initials(acronym: str, long_form: str) -> bool:
    """Return whether words of the long form begin with these letters, in this order.

    >>> is_initials("QS", "quality of service"), is_initials("DEX", "dexamethasone")
    (True, False)
    """
    initials = iter([word[0].upper() for word in _WORD.findall(long_form)])
    return all(letter in initials for letter in acronym)


def _without(row: Row, short: str, cut: tuple[int, int], longs: Sequence[tuple[int, int]], long_form: str) -> Snippet:
    """Return the snippet of a row without the characters in `cut`; `longs` are the offsets of all long forms."""
    text = row["text"]
    words = [match for match in _WORD.finditer(text) if not cut[0] <= match.start() < cut[1]]
    named = {index for index, match in enumerate(words) if any(first <= match.start() < last for first, last in longs)}
    rest = text[: cut[0]] + text[cut[1] :]
    return Snippet(rest, short, long_form, row["doc"], tuple(match[0] for match in words), frozenset(named))


def distinct_snippets(snippets: Iterable[Snippet]) -> list[Snippet]:
    """Return snippets whose text does not show the acronym, each text and each acronym once.

    A model could learn repeated acronyms by heart.
    """
    distinct, acronyms, texts = [], set[str](), set[str]()
    for snippet in snippets:
        key = " ".join(snippet.words).lower()
        shows_acronym = any(snippet.acronym in word.upper() for word in snippet.words)
        if snippet.acronym in acronyms or key in texts or shows_acronym:
            continue
        acronyms.add(snippet.acronym)
        texts.add(key)
        distinct.append(snippet)
    return distinct


def pseudo_acronyms(snippet: Snippet) -> list[str]:
    """Return the initials of as many consecutive words outside long forms, unless a run with named words has them.

    Runs without stop words are preferred: long forms hardly have any, and that must not reveal the label.
    """
    size, initials = len(snippet.acronym), snippet.initials
    runs = {start: initials[start : start + size] for start in range(len(initials) - size + 1)}
    named = {letters for start, letters in runs.items() if snippet.named & set(range(start, start + size))}
    free = {start: letters for start, letters in runs.items() if _is_plain(letters) and letters not in named}
    words = [word.lower() for word in snippet.words]
    preferred = {letters for start, letters in free.items() if STOP_WORDS.isdisjoint(words[start : start + size])}
    return sorted(preferred or set(free.values()))


def mutated_acronyms(snippet: Snippet, letters: Sequence[str], random: np.random.Generator) -> list[str]:
    """Return the acronym with one to all letters changed, unless consecutive words have these initials or a long form
    fits them."""
    mutations = set()
    for _ in range(_MUTATIONS):
        changed = list(snippet.acronym)
        for index in random.permutation(len(changed))[: random.integers(1, len(changed) + 1)]:
            changed[index] = letters[int(random.integers(len(letters)))]
        mutations.add("".join(changed))
    long_form = " ".join(snippet.words[index] for index in sorted(snippet.named))
    mutations -= {snippet.acronym}
    return sorted(mutated for mutated in mutations if mutated not in snippet.initials and not fits(mutated, long_form))


def fits(acronym: str, text: str) -> bool:
    """Return whether the text contains the letters in this order, the first of them at the start of a word.

    >>> fits("DEX", "of dexamethasone"), fits("XED", "of dexamethasone")
    (True, False)
    """
    lowered = text.lower()
    start = re.search(rf"(?<![^\W_]){re.escape(acronym[0].lower())}", lowered)
    position = start.start() if start else -1
    for letter in acronym[1:].lower():
        if position < 0:
            return False
        position = lowered.find(letter, position + 1)
    return position >= 0


class Likeness:
    """How much likelier acronyms are among true than among false ones, by pairs of neighboring letters."""

    def __init__(self, true: Iterable[str], false: Iterable[str]) -> None:
        self._true, self._false = _pairs(true), _pairs(false)

    def weight(self, acronym: str) -> float:
        """Return the ratio of both probabilities."""
        return math.exp(sum(self._true[pair] - self._false[pair] for pair in _neighbors(acronym)))


def _neighbors(acronym: str) -> list[str]:
    marked = f"^{acronym}$"
    return [marked[index : index + 2] for index in range(len(marked) - 1)]


class _Logarithms(dict[str, float]):
    """Log probabilities of a letter given the letter before, smoothed towards the probabilities of the letter alone."""

    def __init__(self, counts: Counter[str]) -> None:
        alone, first = Counter[str](), Counter[str]()
        for pair, count in counts.items():
            first[pair[0]] += count
            alone[pair[1]] += count
        self._counts, self._alone, self._first, self._all = counts, alone, first, sum(counts.values())

    def __missing__(self, pair: str) -> float:
        alone = (self._alone[pair[1]] + 1) / (self._all + 27)
        value = math.log((self._counts[pair] + 5 * alone) / (self._first[pair[0]] + 5))
        self[pair] = value
        return value


def _pairs(acronyms: Iterable[str]) -> _Logarithms:
    return _Logarithms(Counter(pair for acronym in acronyms for pair in _neighbors(acronym)))


def acronym_rows(snippets: Sequence[Snippet], *, alike: bool = True, seed: int = 0) -> list[Row]:
    """Return two rows for each text, with a true and a false acronym; pseudo and mutated acronyms alternate.

    With `alike`, false acronyms are drawn by how much they look like true ones, else uniformly.
    """
    random = np.random.default_rng(seed)
    letters = [letter for snippet in snippets for letter in snippet.acronym]
    candidates = {"pseudo": [pseudo_acronyms(snippet) for snippet in snippets]}
    candidates["mutated"] = [mutated_acronyms(snippet, letters, random) for snippet in snippets]
    true = [snippet.acronym for snippet in snippets]
    likeness = {origin: Likeness(true, chain.from_iterable(lists)) for origin, lists in candidates.items()}
    rows: list[Row] = []
    for number, index in enumerate(random.permutation(len(snippets)).tolist()):
        origin = "pseudo" if number % 2 == 0 and candidates["pseudo"][index] else "mutated"
        if not (acronyms := candidates[origin][index]):
            continue
        weights = np.array([likeness[origin].weight(acronym) if alike else 1.0 for acronym in acronyms])
        false = acronyms[int(random.choice(len(acronyms), p=weights / weights.sum()))]
        rows += [_row(snippets[index], true[index], "gold"), _row(snippets[index], false, origin)]
    return rows


def _row(snippet: Snippet, acronym: str, origin: str) -> Row:
    label = "1" if origin == "gold" else "0"
    return {"text": acronym, "text_pair": snippet.text, "label": label, "doc": snippet.doc, "made": origin}
