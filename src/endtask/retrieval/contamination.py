"""The contamination filter: drops passages that contain a dev or test text before training sees them.

A passage is dropped if it shares 13 consecutive words with such a text. A text of fewer than 13 words must occur in the
passage as one or several complete sentences (or be the complete passage).

The kernel that reads the corpus sees only hashes of words: `may_be_contaminated` flags every passage that may contain
an evaluation text and misses none. `ContaminationFilter.confirm` then checks those few by comparing words.
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
    """The evaluation texts, indexed for the kernel and for exact comparison.

    >>> contamination = ContaminationFilter.of(["Great film.", "One of the longer texts of a test set."])
    >>> contamination.confirm("I saw it. Great film! I left."), contamination.confirm("It was a great film.")
    (True, False)
    """

    def __init__(self, table: ContaminationIndex, long_texts: NDArray[np.uint8], shorts: frozenset[str]) -> None:
        self.table = table
        self._long_texts = long_texts  # words with a blank or, at the end of a text, a line end after each
        self._shorts = shorts  # words with blanks between them

    @classmethod
    def of(cls, texts: Iterable[str]) -> ContaminationFilter:
        """Build the filter of these texts, in all of their `spellings`."""
        forms = {form for text in texts for form in spellings(text)} - {""}
        shorts = frozenset(form for form in forms if form.count(" ") < RUN - 1)
        long_texts = join_texts(sorted(forms - shorts))
        return cls(make_table(long_texts, shorts), long_texts, shorts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the filter as plain arrays, to be saved for other processes."""
        return {
            **self.table._asdict(),
            "long_texts": self._long_texts,
            "short_texts": join_texts(sorted(self._shorts)),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ContaminationFilter:
        """Rebuild a filter from its `arrays`."""
        table = ContaminationIndex(*(arrays[name] for name in ContaminationIndex._fields))
        return cls(table, arrays["long_texts"], frozenset(arrays["short_texts"].tobytes().decode().splitlines()))

    def confirm(self, text: str) -> bool:
        """Return whether a passage contains an evaluation text."""
        sentences = [words for part in _SENTENCE_END.split(text) if (words := words_of(part))]
        return self._has_short_text(sentences) or self._has_run(list(chain.from_iterable(sentences)))

    def _has_short_text(self, sentences: list[list[str]]) -> bool:
        """Return whether consecutive sentences equal a short text, which may have two sentences or a dot inside one."""
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
        """Return whether 13 consecutive words occur in one of the long texts."""
        hashes = np.asarray([_word_hash(word) for word in words], dtype=np.uint64)
        return any(
            self._is_at(start, " ".join(words[index : index + RUN])) for index, start in known_runs(self.table, hashes)
        )

    def _is_at(self, start: int, run: str) -> bool:
        wanted = run.encode()
        found = self._long_texts[start : start + len(wanted) + 1].tobytes()
        return found in (wanted + b" ", wanted + b"\n")


def spellings(text: str) -> Iterator[str]:
    """Yield the words of a text, joined by blanks, in each form that a copy of it may have in a corpus.

    Many task files come from a tokenizer that writes a bracket as `-LRB-` and "don't" as "do n't", or contain HTML
    entities. A corpus may use either form, and one extra word breaks every run around it. Only the evaluation texts are
    respelled, so reading the corpus takes no longer.

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
