"""Packed texts from which aligned objectives make inputs and labels: with words, sentences, spans and titles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from endtask.corpus.passages import sentence_starts
from endtask.corpus.reading import Links
from endtask.records import Document
from endtask.tokenization.packed_texts import PackedTexts, Ragged, save_array, write_packed
from endtask.tokenization.span_finders import Finder, from_markup
from endtask.tokenization.words import NO_LETTER, SIGN, TokenPlaces, initial_finder, word_places

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORDS, SENTENCES, TITLES, DOCUMENTS = "words", "sentences", "titles", "documents"
MARKUP, FOUND = "links", "spans"
"""Spans of the rows' links, and those that the settings' own finder found."""
ADDED_TOKENS = 16
"""Texts are so many tokens shorter than the longest input: room for an acronym, a title or marks beside them."""


class AlignedTexts(PackedTexts):
    """Texts with [CLS] and [SEP] in place; all places are positions in a text's own tokens, [CLS] being 0."""

    @cached_property
    def words(self) -> Ragged:
        """(first token, token behind the last, initial) of each word or sign that lies wholly in a text.

        Initials are those of tokenization/text_words.py.
        """
        return Ragged(self.folder, WORDS)

    @cached_property
    def sentences(self) -> Ragged:
        """First tokens of the sentences that start inside a text."""
        return Ragged(self.folder, SENTENCES)

    @cached_property
    def titles(self) -> Ragged:
        """Token ids of each document's title, by the document's number; none where it has no title."""
        return Ragged(self.folder, TITLES)

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """The number of each text's document, ascending."""
        numbers: NDArray[np.int64] = np.load(self.folder / f"{DOCUMENTS}.npy")
        return numbers

    def spans(self, name: str) -> Ragged:
        """(first token, token behind the last, whole) of each span; one that a cut left only a part of is not whole.

        Nor is one that starts or ends inside a token.
        """
        return Ragged(self.folder, name)

    @cached_property
    def plain_words(self) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """The words of all texts end to end, signs left out, as `words` has them; and where each text's begin.

        All are in memory: in the narrow type that they are stored in.
        """
        values = np.asarray(self.words.values)
        is_word = values[:, 2] != SIGN
        return values[is_word], np.concatenate([[0], np.cumsum(is_word)])[self.words.offsets]

    @cached_property
    def initials(self) -> str:
        """The initials of `plain_words`, one character each."""
        # None is beyond the first 65,536 characters, so two bytes are one character.
        return self.plain_words[0][:, 2].astype("<u2").tobytes().decode("utf-16-le")


Whole = NDArray[np.int64]
Tokens = tuple[list[int], list[tuple[int, int]]]
"""Token ids and the characters that each stands for."""
_BATCH = 500


class Cutter(Protocol):
    """What makes tokens of the texts of documents."""

    def __call__(self, documents: list[Document], texts: list[str]) -> list[list[Tokens]]:
        """The tokens of each text, once or several times."""
        ...


def pack_aligned(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    folder: Path,
    *,
    find: Finder = from_markup,
    cut: Cutter | None = None,
) -> AlignedTexts:
    """Write the texts of passages, cut to `max_length` less the room that objectives need beside a text."""
    work = _Packing(tokenizer, max_length - ADDED_TOKENS, find, cut or plain_cutter(tokenizer))
    write_packed(work.pieces(documents), len(tokenizer), folder)
    Ragged.write(folder, WORDS, work.words, np.uint16, columns=3)
    Ragged.write(folder, SENTENCES, work.sentences, np.int32)
    Ragged.write(folder, MARKUP, work.links, np.int32, columns=3)
    Ragged.write(folder, FOUND, work.found, np.int32, columns=3)
    Ragged.write(folder, TITLES, work.titles, np.int32)
    save_array(folder / f"{DOCUMENTS}.npy", np.asarray(work.documents, dtype=np.int64))
    return AlignedTexts(folder)


def plain_cutter(tokenizer: PreTrainedTokenizerFast) -> Cutter:
    """Every text once, as the tokenizer always cuts it."""

    def cut(documents: list[Document], texts: list[str]) -> list[list[Tokens]]:
        encodings = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
        return [[(encoding.ids, encoding.offsets)] for encoding in encodings]

    return cut


@dataclass
class _Packing:
    """What is known of the texts so far, one array per text."""

    tokenizer: PreTrainedTokenizerFast
    length: int
    find: Finder
    cut: Cutter
    words: list[NDArray[Any]] = field(default_factory=list)
    sentences: list[NDArray[Any]] = field(default_factory=list)
    links: list[NDArray[Any]] = field(default_factory=list)
    found: list[NDArray[Any]] = field(default_factory=list)
    titles: list[NDArray[Any]] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)

    def pieces(self, documents: Iterable[Document]) -> Iterator[tuple[list[int], int]]:
        """The token ids of each text, for `write_packed`."""
        initial = initial_finder(self.tokenizer)
        stream, last = iter(documents), None
        while chunk := list(islice(stream, _BATCH)):
            readings = [self.find(document) for document in chunk]
            all_tokens = self.cut(chunk, [text for text, _ in readings])
            for document, (text, spans), several in zip(chunk, readings, all_tokens, strict=True):
                if last != (last := document_key(document)):
                    self.titles.append(self._title(document))
                # Links are of the text as it was; a finder that changes it brings all the spans there are.
                links = document.links if text == document.text else ()
                for tokens in several:
                    yield from self._cut_up(text, tokens, links, spans, initial)

    def _title(self, document: Document) -> Whole:
        ids = self.tokenizer(document.title or "", add_special_tokens=False, verbose=False)["input_ids"]
        return np.asarray(ids[: ADDED_TOKENS - 2], dtype=np.int64)

    def _cut_up(
        self, text: str, tokens: Tokens, links: Links, spans: Links, initial: Callable[[str], int]
    ) -> Iterator[tuple[list[int], int]]:
        ids, offsets = tokens
        places = TokenPlaces(text, offsets)
        words = _word_table(text, places, initial)
        starts = places.first_tokens(sentence_starts(text))
        of_links, of_spans = places.token_ranges(links), places.token_ranges(spans)
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        for start in range(0, len(ids), self.length - 2):
            end = min(start + self.length - 2, len(ids))
            self.documents.append(len(self.titles) - 1)
            inside = (words[:, 0] >= start) & (words[:, 1] <= end)
            self.words.append(words[inside] - [start - 1, start - 1, 0])
            self.sentences.append(np.unique(starts[(starts > start) & (starts < end)]) - start + 1)
            self.links.append(_spans_inside(of_links, start, end))
            self.found.append(_spans_inside(of_spans, start, end))
            yield [cls, *ids[start:end], sep], end - start + 2


def _word_table(text: str, places: TokenPlaces, initial: Callable[[str], int]) -> Whole:
    """(first token, token behind the last, initial) of each word: (words, 3)"""
    spans = word_places(text)
    ranges = places.token_ranges(spans)
    initials = np.fromiter((initial(text[start:end]) for start, end in spans), dtype=np.int64, count=len(spans))
    # A word that shares a token with its neighbor has no initial of its own.
    initials[(ranges[:, 2] == 0) & (initials != SIGN)] = NO_LETTER
    table = np.stack([ranges[:, 0], ranges[:, 1], initials], axis=1)[ranges[:, 0] < ranges[:, 1]]
    _, firsts = np.unique(table[:, 0], return_index=True)
    return table[firsts]


def _spans_inside(ranges: Whole, start: int, end: int) -> Whole:
    """The spans of a text that takes the tokens from `start` to `end`, clipped to it."""
    met = ranges[(ranges[:, 0] < end) & (ranges[:, 1] > start) & (ranges[:, 0] < ranges[:, 1])]
    clipped = np.clip(met[:, :2], start, end)
    whole = (met[:, 2] == 1) & (clipped == met[:, :2]).all(axis=1)
    return np.column_stack([clipped - start + 1, whole])


def document_key(document: Document) -> tuple[str, str]:
    """What tells whether two passages that follow each other are of one document: its title, else its id.

    >>> document_key(Document("wiki/7#p2", "text", "wiki"))
    ('wiki', 'wiki/7')
    """
    whole_id, mark, number = document.id.rpartition("#p")
    return document.source, document.title or (whole_id if mark and number.isdigit() else document.id)
