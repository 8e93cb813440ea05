"""AD: is this an acronym of something named in the text, from gold pairs whose short forms were taken out of the text.

True acronyms are initials of words of their long form. Every text has one of them and a false one with as many letters:
initials of other words in a row (a pseudo acronym), of words that are no stop words where there are any, or the true
one with letters changed. It is drawn in proportion to how much likelier its letters are among true acronyms than among
false ones; otherwise the letters of `of` and `the`, with which many runs of words begin, would tell most classes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    """A text without the short form `acronym` of `long_form`; `named` are the words of all long forms in it."""

    text: str
    acronym: str
    long_form: str
    doc: str
    words: tuple[str, ...]
    named: frozenset[int]

    @property
    def initials(self) -> str:
        """The letters that its words begin with; a digit stands for words that begin with one."""
        return "".join(word[0].upper() for word in self.words)


def places_of(tokens: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where the tokens stand in their text.

    >>> places_of(["a", "(", "b", ")"], "a (b)")
    [(0, 1), (2, 3), (3, 4), (4, 5)]
    """
    places, end = [], 0
    for token in tokens:
        start = text.index(token, end)
        end = start + len(token)
        places.append((start, end))
    return places


def snippets_of(row: Row) -> Iterator[Snippet]:
    """One for each short form in brackets right behind its long form, whose words begin with its letters."""
    tokens, spans = row["tokens"], spans_of(row["tags"], "bio")
    places = places_of(tokens, row["text"])
    longs = [(start, end) for kind, start, end in spans if kind == "long"]
    for kind, start, end in spans:
        if kind != "short" or end - start > 1 or not _is_plain(tokens[start]):
            continue
        opening, closing = (tokens[place] if 0 <= place < len(tokens) else "" for place in (start - 1, end))
        before = [span for span in longs if span[1] == start - 1]
        if before and closing and _CLOSING.get(opening) == closing:
            cut = (places[start - 2][1], places[end][1])
            long_form = row["text"][places[before[0][0]][0] : cut[0]]
            characters = [(places[first][0], places[last - 1][1]) for first, last in longs]
            if is_initials(acronym := singular(tokens[start]), long_form):
                yield _without(row, acronym, cut, characters, long_form)


def _is_plain(short: str) -> bool:
    return short.isascii() and short.isalpha() and SHORTEST <= len(short) <= LONGEST


def singular(short: str) -> str:
    """An acronym in capitals without the `s` of its plural.

    >>> singular("EPCs"), singular("pcr")
    ('EPC', 'PCR')
    """
    return short[:-1] if len(short) > SHORTEST and short.endswith("s") and short[:-1].isupper() else short.upper()


def is_initials(acronym: str, long_form: str) -> bool:
    """Whether words of the long form begin with these letters, in this order.

    >>> is_initials("QS", "quality of service"), is_initials("DEX", "dexamethasone")
    (True, False)
    """
    initials = iter([word[0].upper() for word in _WORD.findall(long_form)])
    return all(letter in initials for letter in acronym)


def _without(row: Row, short: str, cut: tuple[int, int], longs: Sequence[tuple[int, int]], long_form: str) -> Snippet:
    """The text without what is cut out, and which of its words are named by a long form."""
    text = row["text"]
    words = [match for match in _WORD.finditer(text) if not cut[0] <= match.start() < cut[1]]
    named = {place for place, match in enumerate(words) if any(first <= match.start() < last for first, last in longs)}
    shown = text[: cut[0]] + text[cut[1] :]
    return Snippet(shown, short, long_form, row["doc"], tuple(match[0] for match in words), frozenset(named))


def chosen(snippets: Iterable[Snippet]) -> list[Snippet]:
    """Every text and every acronym once, so that nobody learns acronyms by heart; none that its text still shows."""
    found, acronyms, texts = [], set[str](), set[str]()
    for one in snippets:
        key = " ".join(one.words).lower()
        shows = any(one.acronym in word.upper() for word in one.words)
        if one.acronym in acronyms or key in texts or shows:
            continue
        acronyms.add(one.acronym)
        texts.add(key)
        found.append(one)
    return found


def pseudo_acronyms(snippet: Snippet) -> list[str]:
    """Initials of as many words in a row, none of them named by a long form; that no named words begin with.

    Where some are of words that are no stop words, only those: that a name holds no stop words must not be enough.
    """
    size, initials = len(snippet.acronym), snippet.initials
    runs = {start: initials[start : start + size] for start in range(len(initials) - size + 1)}
    named = {letters for start, letters in runs.items() if snippet.named & set(range(start, start + size))}
    free = {start: letters for start, letters in runs.items() if _is_plain(letters) and letters not in named}
    words = [word.lower() for word in snippet.words]
    full = {letters for start, letters in free.items() if STOP_WORDS.isdisjoint(words[start : start + size])}
    return sorted(full or set(free.values()))


def mutated_acronyms(snippet: Snippet, letters: Sequence[str], random: np.random.Generator) -> list[str]:
    """The acronym with one to all letters changed, where no words in a row begin with that and no long form fits it."""
    found = set()
    for _ in range(_MUTATIONS):
        changed = list(snippet.acronym)
        for place in random.permutation(len(changed))[: random.integers(1, len(changed) + 1)]:
            changed[place] = letters[int(random.integers(len(letters)))]
        found.add("".join(changed))
    long_form = " ".join(snippet.words[place] for place in sorted(snippet.named))
    found -= {snippet.acronym}
    return sorted(one for one in found if one not in snippet.initials and not fits(one, long_form))


def fits(acronym: str, text: str) -> bool:
    """Whether its letters stand in the text in this order, the first of them at the start of a word.

    >>> fits("DEX", "of dexamethasone"), fits("XED", "of dexamethasone")
    (True, False)
    """
    lowered = text.lower()
    start = re.search(rf"(?<![^\W_]){re.escape(acronym[0].lower())}", lowered)
    place = start.start() if start else -1
    for letter in acronym[1:].lower():
        if place < 0:
            return False
        place = lowered.find(letter, place + 1)
    return place >= 0


class Likeness:
    """How much likelier letters are among true acronyms than among false ones, by pairs of neighbors."""

    def __init__(self, true: Iterable[str], false: Iterable[str]) -> None:
        self._true, self._false = _pairs(true), _pairs(false)

    def weight(self, acronym: str) -> float:
        """The ratio of both probabilities."""
        return math.exp(sum(self._true[pair] - self._false[pair] for pair in _neighbors(acronym)))


def _neighbors(acronym: str) -> list[str]:
    shown = f"^{acronym}$"
    return [shown[place : place + 2] for place in range(len(shown) - 1)]


class _Logarithms(dict[str, float]):
    """Log probabilities of a second letter given the first, smoothed towards those of the letter alone."""

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
    """A true and a false acronym for each text; false ones are pseudo acronyms and changed ones in turn."""
    random = np.random.default_rng(seed)
    letters = [letter for one in snippets for letter in one.acronym]
    ways = {"pseudo": [pseudo_acronyms(one) for one in snippets]}
    ways["mutated"] = [mutated_acronyms(one, letters, random) for one in snippets]
    true = [one.acronym for one in snippets]
    likeness = {way: Likeness(true, (one for some in found for one in some)) for way, found in ways.items()}
    rows: list[Row] = []
    for number, place in enumerate(random.permutation(len(snippets)).tolist()):
        way = "pseudo" if number % 2 == 0 and ways["pseudo"][place] else "mutated"
        if not (candidates := ways[way][place]):
            continue
        weights = np.array([likeness[way].weight(one) if alike else 1.0 for one in candidates])
        false = candidates[int(random.choice(len(candidates), p=weights / weights.sum()))]
        rows += [_row(snippets[place], true[place], "gold"), _row(snippets[place], false, way)]
    return rows


def _row(snippet: Snippet, acronym: str, way: str) -> Row:
    label = "1" if way == "gold" else "0"
    return {"text": acronym, "text_pair": snippet.text, "label": label, "doc": snippet.doc, "made": way}
