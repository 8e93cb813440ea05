"""Packed texts preserve links, words, sentences, titles and documents with every tokenizer."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import AlignedSettings, CorpusSettings, SourceSettings, TokenizerSettings
from endtask.corpus import Corpus
from endtask.records import Document
from endtask.tokenization.aligned_texts import ADDED_TOKENS, document_key, pack_aligned
from endtask.tokenization.tokenizer import train_tokenizer
from endtask.tokenization.word_spans import NO_LETTER, SIGN
from tests.aligned_toy import KINDS, LONGEST, make_aligned, make_documents, make_tokenizer


def plain(text: str) -> str:
    return "".join(text.lower().split())


@pytest.mark.parametrize("kind", KINDS)
def test_a_links_tokens_are_its_words(kind: str, tmp_path: Path) -> None:
    documents, tokenizer = make_documents(), make_tokenizer(kind)
    texts = make_aligned(tmp_path, kind=kind)
    anchors = [plain(one.text[start:end]) for one in documents for start, end in one.links]
    spans = texts.links
    decoded = [
        plain(tokenizer.decode(texts[position][start:end]))
        for position in range(len(texts))
        for start, end, whole in spans[position]
        if whole
    ]
    assert len(decoded) > 0.8 * len(anchors)
    remaining = list(anchors)
    for one in decoded:
        remaining.remove(one)  # each labelled span is one of the links, and none twice
    cut = [row for position in range(len(texts)) for row in spans[position] if not row[2]]
    assert len(cut) <= 2 * len(remaining)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10_000), length=st.integers(12, 60))
@settings(max_examples=15)
def test_texts_hold_every_token_once_and_places_point_to_words(
    kind: str, seed: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents, tokenizer = make_documents(3, seed=seed), make_tokenizer(kind)
    texts = pack_aligned(documents, tokenizer, length + ADDED_TOKENS, tmp_path_factory.mktemp("packed"))
    inside = np.concatenate([texts[position][1:-1] for position in range(len(texts))])
    whole = tokenizer([one.text for one in documents], add_special_tokens=False)["input_ids"]
    assert inside.tolist() == [token for ids in whole for token in ids]
    assert texts.lengths.max() <= length
    for position in range(len(texts)):
        size = int(texts.lengths[position])
        places = texts.words[position][:, 0]
        assert np.all(np.diff(places.astype(int)) > 0)
        assert np.all((places >= 1) & (places < size - 1))
        assert np.all((texts.sentences[position] > 1) & (texts.sentences[position] < size - 1))
        for start, end, _ in texts.links[position]:
            assert 1 <= start < end <= size - 1


@pytest.mark.parametrize("kind", KINDS)
def test_initials_are_those_of_the_words(kind: str, tmp_path: Path) -> None:
    documents = [Document("1", "The 3 rivers, O'Neill's co-op (in Rome)!", "s")]
    texts = pack_aligned(documents, make_tokenizer(kind), LONGEST, tmp_path)
    assert texts.initials == "t\0rocoir"
    assert set(texts.words[0][:, 2]) >= {SIGN, NO_LETTER}


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_in_spelled_capitals_is_one_word_of_several_tokens(kind: str, tmp_path: Path) -> None:
    asked = TokenizerSettings(kind=kind, vocab_size=300, spell_capitals=True)
    tokenizer = train_tokenizer(["the DNA of rivers"] * 20, asked, LONGEST)
    texts = pack_aligned([Document("1", "the DNA, of rivers", "s")], tokenizer, LONGEST, tmp_path)
    assert texts.initials == "tdor"
    first, behind, _ = texts.plain_words[0][1]
    assert texts[0][first:behind].tolist() == tokenizer("the DNA", add_special_tokens=False)["input_ids"][-3:]
    assert behind - first == 3


def test_a_letter_that_no_acronym_can_show_ends_a_run(tmp_path: Path) -> None:
    texts = pack_aligned([Document("1", "river жук stone", "s")], make_tokenizer(), LONGEST, tmp_path)
    assert texts.initials == "r\0s"


def test_sentences_and_documents_are_told_apart(tmp_path: Path) -> None:
    documents = [
        Document("a#p1", "River stone. Green cloud.", "s"),
        Document("a#p2", "Apple candle.", "s"),
        Document("b", "Window silver.", "s", title="River"),
        Document("c", "Paper letter.", "s", title="River"),
        Document("d", "Paper letter.", "s"),
    ]
    texts, tokenizer = pack_aligned(documents, make_tokenizer(), LONGEST, tmp_path), make_tokenizer()
    assert texts.documents.tolist() == [0, 0, 1, 1, 2]
    assert tokenizer.decode(texts[0][texts.sentences[0][0] :]).startswith("green cloud")


def test_passages_without_a_title_are_known_by_their_id() -> None:
    assert document_key(Document("a#p12", "", "s")) == document_key(Document("a#p3", "", "s"))
    assert document_key(Document("a#px", "", "s")) != document_key(Document("a", "", "s"))


def test_the_same_documents_give_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_aligned(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) > 8
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_links_of_real_pages_survive(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "corpus_links" / "enwiki_links.jsonl.zst"
    if not path.exists():
        pytest.skip("no corpus with links beside the repository")
    corpus = Corpus.aligned(AlignedSettings(sources=(SourceSettings(path=str(path)),)), CorpusSettings())
    documents = list(islice(corpus.documents(), 80))
    settings = TokenizerSettings(vocab_size=2000, kind="bpe", lowercase=False)  # which keeps every character
    tokenizer = train_tokenizer([one.text for one in documents], settings, 128)
    texts = pack_aligned(documents, tokenizer, 128, tmp_path)
    anchors = Counter(one.text[start:end] for one in documents for start, end in one.links)
    spans = [(position, *row) for position in range(len(texts)) for row in texts.links[position]]
    decoded = Counter(tokenizer.decode(texts[place][start:end]).strip() for place, start, end, whole in spans if whole)
    assert decoded <= anchors
    assert decoded.total() > 0.9 * anchors.total() > 400
