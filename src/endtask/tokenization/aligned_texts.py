"""Packed texts of aligned objectives, with the words, sentences and links from which the objectives derive labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from endtask.corpus.passages import sentence_starts
from endtask.records import Document, batched
from endtask.tokenization.packed_texts import PackedTexts, Ragged, save_array, write_packed
from endtask.tokenization.word_spans import NO_LETTER, SIGN, TokenSpans, initial_finder, word_spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORDS, SENTENCES, LINKS, DOCUMENTS = "words", "sentences", "links", "documents"
"""File names."""
ADDED_TOKENS = 16
"""Texts are this many tokens shorter than the maximum length, so that an objective can insert an acronym."""


class AlignedTexts(PackedTexts):
    """Texts with [CLS] and [SEP]; token indices start at 0 in each text, which is [CLS]."""

    @cached_property
    def words(self) -> Ragged:
        """(first token, end, initial) of each word or punctuation mark that is completely in a text.

        See tokenization/word_spans.py for initials.
        """
        return Ragged(self.folder, WORDS)

    @cached_property
    def sentences(self) -> Ragged:
        """First tokens of the sentences that start inside a text."""
        return Ragged(self.folder, SENTENCES)

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """The index of each text's document, ascending."""
        numbers: NDArray[np.int64] = np.load(self.folder / f"{DOCUMENTS}.npy")
        return numbers

    @cached_property
    def links(self) -> Ragged:
        """(first token, end, complete) of each link.

        A link is not complete if it was truncated, or if it starts or ends inside a token.
        """
        return Ragged(self.folder, LINKS)

    @cached_property
    def plain_words(self) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """The words of all texts in one array, without punctuation, in the format of `words`; and their text offsets.

        The array is in memory and has the type of the file.
        """
        values = np.asarray(self.words.values)
        is_word = values[:, 2] != SIGN
        return values[is_word], np.concatenate([[0], np.cumsum(is_word)])[self.words.offsets]

    @cached_property
    def initials(self) -> str:
        """The initials of `plain_words`, one character each."""
        # All code points are below 65,536, so a character has two bytes.
        return self.plain_words[0][:, 2].astype("<u2").tobytes().decode("utf-16-le")


IntArray = NDArray[np.int64]
Tokens = tuple[list[int], list[tuple[int, int]]]
"""Token ids and the characters that each token covers."""
_BATCH = 500


class TextEncoder(Protocol):
    """Encodes the texts of documents as tokens."""

    def __call__(self, documents: list[Document], texts: list[str]) -> list[Tokens]:
        """Return the tokens of each text."""
        ...


def pack_aligned(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    folder: Path,
    *,
    encode: TextEncoder | None = None,
) -> AlignedTexts:
    """Tokenise and write passages, split to `max_length` - ADDED_TOKENS tokens."""
    packing = _Packing(tokenizer, max_length - ADDED_TOKENS, encode or plain_encoder(tokenizer))
    write_packed(packing.texts(documents), len(tokenizer), folder)
    Ragged.write(folder, WORDS, packing.words, np.uint16, columns=3)
    Ragged.write(folder, SENTENCES, packing.sentences, np.int32)
    Ragged.write(folder, LINKS, packing.links, np.int32, columns=3)
    save_array(folder / f"{DOCUMENTS}.npy", np.asarray(packing.documents, dtype=np.int64))
    return AlignedTexts(folder)


def plain_encoder(tokenizer: PreTrainedTokenizerFast) -> TextEncoder:
    """Return an encoder that tokenizes without sampling."""

    def encode(documents: list[Document], texts: list[str]) -> list[Tokens]:
        encodings = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    return encode


@dataclass
class _Packing:
    """Collects an array per text while texts are tokenised."""

    tokenizer: PreTrainedTokenizerFast
    length: int
    encode: TextEncoder
    words: list[NDArray[Any]] = field(default_factory=list)
    sentences: list[NDArray[Any]] = field(default_factory=list)
    links: list[NDArray[Any]] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)

    def texts(self, documents: Iterable[Document]) -> Iterator[tuple[list[int], int]]:
        """Yield the token ids of each text, for `write_packed`."""
        initial = initial_finder(self.tokenizer)
        previous, index = None, -1
        for chunk in batched(documents, _BATCH):
            texts = [document.text for document in chunk]
            for document, tokens in zip(chunk, self.encode(chunk, texts), strict=True):
                if previous != (previous := document_key(document)):
                    index += 1
                yield from self._split(document, index, tokens, initial)

    def _split(
        self, document: Document, index: int, tokens: Tokens, initial: Callable[[str], int]
    ) -> Iterator[tuple[list[int], int]]:
        text, (ids, offsets) = document.text, tokens
        token_spans = TokenSpans(text, offsets)
        words = _word_table(text, token_spans, initial)
        starts = token_spans.first_tokens(sentence_starts(text))
        link_ranges = token_spans.token_ranges(document.links)
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        for start in range(0, len(ids), self.length - 2):
            end = min(start + self.length - 2, len(ids))
            self.documents.append(index)
            inside = (words[:, 0] >= start) & (words[:, 1] <= end)
            self.words.append(words[inside] - [start - 1, start - 1, 0])
            self.sentences.append(np.unique(starts[(starts > start) & (starts < end)]) - start + 1)
            self.links.append(_spans_inside(link_ranges, start, end))
            yield [cls, *ids[start:end], sep], end - start + 2


def _word_table(text: str, token_spans: TokenSpans, initial: Callable[[str], int]) -> IntArray:
    """Return (first token, end, initial) of each word: (words, 3)."""
    spans = word_spans(text)
    ranges = token_spans.token_ranges(spans)
    initials = np.fromiter((initial(text[start:end]) for start, end in spans), dtype=np.int64, count=len(spans))
    # A word that shares a token with its neighbor has no initial.
    initials[(ranges[:, 2] == 0) & (initials != SIGN)] = NO_LETTER
    table = np.stack([ranges[:, 0], ranges[:, 1], initials], axis=1)[ranges[:, 0] < ranges[:, 1]]
    _, firsts = np.unique(table[:, 0], return_index=True)
    return table[firsts]


def _spans_inside(ranges: IntArray, start: int, end: int) -> IntArray:
    """Return the spans that overlap the tokens from `start` to `end`, clipped and relative to [CLS]."""
    overlapping = ranges[(ranges[:, 0] < end) & (ranges[:, 1] > start) & (ranges[:, 0] < ranges[:, 1])]
    clipped = np.clip(overlapping[:, :2], start, end)
    complete = (overlapping[:, 2] == 1) & (clipped == overlapping[:, :2]).all(axis=1)
    return np.column_stack([clipped - start + 1, complete])


def document_key(document: Document) -> tuple[str, str]:
    """Return a key that consecutive passages of a document share: its source, and its title or id.

    >>> document_key(Document("wiki/7#p2", "text", "wiki"))
    ('wiki', 'wiki/7')
    """
    document_id, separator, number = document.id.rpartition("#p")
    return document.source, document.title or (document_id if separator and number.isdigit() else document.id)
