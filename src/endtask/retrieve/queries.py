"""Task texts as queries: entity marks removed, equal queries merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from endtask.records import Example
from endtask.retrieve.words import words_of
from endtask.task import remove_entity_marks


@dataclass(frozen=True)
class Query:
    """One query and the examples that ask it; labels are not used."""

    text: str
    example_ids: tuple[str, ...]


def build_queries(examples: Iterable[Example]) -> list[Query]:
    """One query per distinct text, in the order of the examples; examples without any word ask nothing."""
    asked: dict[str, list[str]] = {}
    for example in examples:
        text = " ".join(part for part in (example.text, example.text_pair) if part)
        words = " ".join(words_of(remove_entity_marks(text)))
        if words:
            asked.setdefault(words, []).append(example.id)
    return [Query(text, tuple(ids)) for text, ids in asked.items()]


def papers_top_k(examples: int) -> int:
    """TLM's number of passages per example (Table B.1): the fewer the examples, the more each asks for."""
    if examples < 5_000:
        return 5_000
    return 50 if examples > 100_000 else 500
