"""The peers of the retrieval benchmark split texts into the same words as endtask."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.retrieval.engines import word_expression
from endtask.corpus import Corpus
from endtask.retrieval.words import fold, words_of

ODD = "The X-ray of Zürich, 東京タワー, Ὀδυσσεύς ΤΈΛΟΣ İstanbul naïve नमस्ते ²½ 𝒳𐐀𠀀 a_b don't \u0301x"


def test_tantivy_cuts_the_same_words(shared_data: Path) -> None:
    tantivy = pytest.importorskip("tantivy", reason="tantivy is needed for the benchmark of retrieval only")
    analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(word_expression())).build()
    files = [shared_data / "corpus" / f"{name}.jsonl.zst" for name in ("scitldr_abstracts", "craft_pmc_fulltext")]
    texts = [ODD, *(document.text for document in Corpus.read(files).documents())]
    assert sum(not text.isascii() for text in texts) > 500
    assert [text for text in texts if analyzer.analyze(fold(text)) != words_of(text)] == []
