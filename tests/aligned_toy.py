"""Passages with links, sentences and titles, small enough to pack inside a test."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from endtask.config import TokenizerSettings
from endtask.records import Document
from endtask.tokenization.aligned_texts import ADDED_TOKENS, AlignedTexts, pack_aligned
from endtask.tokenization.tokenizer import train_tokenizer
from tests.tiny import WORDS

KINDS = ("wordpiece", "bpe", "unigram")
LONGEST = 48 + ADDED_TOKENS


def make_documents(count: int = 12, *, seed: int = 0, sentences: int = 4, titles: bool = True) -> list[Document]:
    """Return documents of several sentences, each with a link to one to three words."""
    random = np.random.default_rng(seed)
    return [_document(number, sentences, titles, random) for number in range(count)]


def _document(number: int, sentences: int, titles: bool, random: np.random.Generator) -> Document:
    text, links = "", []
    for _ in range(sentences):
        words = [str(word) for word in random.choice(WORDS, size=random.integers(4, 9))]
        first = int(random.integers(len(words)))
        linked = words[first : first + int(random.integers(1, 4))]
        before = text + " ".join([*words[:first], ""]).capitalize()
        start = len(before)
        sentence = before + " ".join(linked) + " ".join(["", *words[first + len(linked) :]])
        links.append((start, start + len(" ".join(linked))))
        text = f"{sentence[0].upper()}{sentence[1:]}. "
    title = f"{WORDS[number % len(WORDS)]} {WORDS[(number * 7) % len(WORDS)]}" if titles else None
    return Document(f"toy/{number}", text.rstrip(), "toy", title, links=tuple(links))


def linked_rows(count: int = 30) -> list[dict[str, Any]]:
    """Return documents as rows of a corpus file."""
    return [
        {"text": document.text, "title": document.title, "links": [list(link) for link in document.links]}
        for document in make_documents(count)
    ]


@cache
def make_tokenizer(kind: str = "wordpiece") -> PreTrainedTokenizerFast:
    """Return a tokenizer of a kind that splits many of the words."""
    texts = [document.text for document in make_documents(40)]
    settings = TokenizerSettings(
        kind=kind, vocab_size=400 if kind == "bpe" else 90, entity_markers=("[[", "]]", "<<", ">>")
    )
    return train_tokenizer(texts, settings, LONGEST)


def make_aligned(folder: Path, count: int = 12, *, kind: str = "wordpiece", seed: int = 0) -> AlignedTexts:
    """Return packed documents."""
    return pack_aligned(make_documents(count, seed=seed), make_tokenizer(kind), LONGEST, folder)
