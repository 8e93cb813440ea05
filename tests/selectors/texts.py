"""Retrieved passages of known words, and train rows with some of these words."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from endtask.records import Document, Example, Selected
from tests.selectors.candidates import write_retrieved

WORDS = ("gene", "Protein", "cell", "goal", "match", "Zürich", "東京", "bread", "soup", "ΣΊΣΥΦΟΣ")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=25)

EXAMPLES = (
    Example("train-0", "the gene and the protein", "biology"),
    Example("train-1", "a cell has a protein", "biology"),
    Example("train-2", "the goal of the match", "sport", "a match is a match"),
)


def passages_of(texts: list[str]) -> list[Selected]:
    """Return a passage for each text, ranked in their order."""
    return [
        Selected(Document(f"d{index}", text, "s"), index, index + 1, 90.0 - index, 1, (f"train-{index}",), "retrieved")
        for index, text in enumerate(texts)
    ]


def retrieve_texts(folder: Path, texts: list[str]) -> Path:
    return write_retrieved(folder, passages_of(texts))
