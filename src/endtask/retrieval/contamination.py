"""The contamination filter: passages that contain a dev or test text never reach training.

A passage is dropped if it shares a run of 13 words with such a text; for a text of fewer than 13 words, if the text
stands in the passage as one or several whole sentences (or is the whole passage).

The kernel that reads the corpus sees only hashes of words; `may_be_contaminated` names the passages that may hold a
guarded text and misses none. Those few are read again by `ContaminationFilter.confirm`, which compares words and not hashes.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.contamination_index import (
    RUN,
    ContaminationIndex,
    join_texts,
    known_runs,
    make_table,
    may_be_contaminated,
)
from endtask.retrieval.words import word_hash, words_of

__all__ = ["RUN", "ContaminationFilter", "ContaminationIndex", "may_be_contaminated", "spellings"]

_SENTENCE_END = re.compile(r"""(?<=[.!?…؟۔।॥])["”’»')\]]*\s+|(?<=[。！？．｡])|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+""")
_ESCAPED_BRACKET = re.compile(r"-[lr][rsc]b-", re.IGNORECASE)

_word_hash = lru_cache(maxsize=1 << 16)(word_hash)


class ContaminationFilter:
    """The evaluation texts, ready to be looked for.

    >>> contamination_filter = ContaminationFilter.of(["Great film.", "It was not what I had been told that it was going to be like."])
    >>> contamination_filter.confirm("I saw it. Great film! I left."), contamination_filter.confirm("It was a great film.")
    (True, False)
    """

    def __init__(self, table: ContaminationIndex, long_texts: NDArray[np.uint8], shorts: frozenset[str]) -> None:
        self.table = table
        self._long_texts = long_texts  # words with a blank or, at the end of a text, a line end after each
        self._shorts = shorts  # words with blanks between them

    @classmethod
    def of(cls, texts: Iterable[str]) -> ContaminationFilter:
        """Guard these texts, in every spelling."""
        forms = {form for text in texts for form in spellings(text)} - {""}
        shorts = frozenset(form for form in forms if form.count(" ") < RUN - 1)
        long_texts = join_texts(sorted(forms - shorts))
        return cls(make_table(long_texts, shorts), long_texts, shorts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The whole guard as plain arrays, for files that several processes may map into their memory."""
        return {
            **self.table._asdict(),
            "long_texts": self._long_texts,
            "short_texts": join_texts(sorted(self._shorts)),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ContaminationFilter:
        """The contamination filter whose `arrays` these are."""
        table = ContaminationIndex(*(arrays[name] for name in ContaminationIndex._fields))
        return cls(table, arrays["long_texts"], frozenset(arrays["short_texts"].tobytes().decode().splitlines()))

    def confirm(self, text: str) -> bool:
        """Whether a passage holds a guarded text."""
        sentences = [words for part in _SENTENCE_END.split(text) if (words := words_of(part))]
        return self._has_short_text(sentences) or self._has_run(list(chain.from_iterable(sentences)))

    def _has_short_text(self, sentences: list[list[str]]) -> bool:
        """Whether consecutive sentences make up a short text; a test text may hold two, or a dot inside one."""
        for first in range(len(sentences)):
            words: list[str] = []
            for sentence in sentences[first : first + RUN]:
                words += sentence
                if len(words) >= RUN:
                    break
                if " ".join(words) in self._shorts:
                    return True
        return False

    def _has_run(self, words: list[str]) -> bool:
        """Whether 13 words in a row stand in one of the long texts."""
        hashes = np.asarray([_word_hash(word) for word in words], dtype=np.uint64)
        return any(
            self._stands_at(start, " ".join(words[place : place + RUN]))
            for place, start in known_runs(self.table, hashes)
        )

    def _stands_at(self, start: int, run: str) -> bool:
        wanted = run.encode()
        found = self._long_texts[start : start + len(wanted) + 1].tobytes()
        return found in (wanted + b" ", wanted + b"\n")


def spellings(text: str) -> Iterator[str]:
    """The words of a text, with blanks between them, in each form that a copy of it may have in a corpus.

    Many task files were cut by a tokenizer that writes a bracket as `-LRB-` and "don't" as "do n't", or hold HTML
    entities; a corpus may be written either way, and a word too many breaks every run it stands in. Only the guarded
    texts are respelled, so the corpus is read no slower.

    >>> list(spellings("It does n't (p &lt; 5)"))
    ['it does n t p lt 5', 'it doesn t p lt 5', 'it does n t p 5', 'it doesn t p 5']
    """
    plain = html.unescape(text)
    plain = _ESCAPED_BRACKET.sub(" ", plain if plain.isascii() else unicodedata.normalize("NFKC", plain))
    for form in dict.fromkeys((text, plain)):
        words = " ".join(words_of(form))
        contracted = f" {words} ".replace(" n t ", "n t ").replace(" can not ", " cannot ")
        parted = contracted.replace("n t ", " n t ").replace(" cannot ", " can not ")
        yield from dict.fromkeys((words, contracted.strip(), parted.strip()))
