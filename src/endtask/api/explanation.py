"""Why a model predicts what it predicts: the nearest training texts, and the selected passages that match the text."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.api.html import table_html
from endtask.evaluation.baselines import texts_of
from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_batches
from endtask.records import Example, Label
from endtask.reporting.format import shorten
from endtask.retrieval.provenance import Bm25Scorer, MatchedPassage, QueryWord, WordScore, passages_for, why_example
from endtask.retrieval.words import words_of
from endtask.task import Task
from endtask.task.text_keys import normalized_key

_K1, _B = 1.2, 0.75
_CHARACTERS, _WORDS = 160, 6


@dataclass(frozen=True)
class Neighbor:
    """A train row near to a text: its BM25 score for the words of the text, and the score of each shared word.

    `equal` is whether the texts are equal but for entity markers, case and punctuation.
    """

    id: str
    text: str
    label: Label
    score: float
    words: tuple[WordScore, ...]
    equal: bool


@dataclass(frozen=True)
class Explanation:
    """A text, its prediction, the nearest train rows and the selected passages that match it, best first.

    For a row of the task, `id` and `label` are those of the row. `note` says why there are no passages.
    """

    text: str
    prediction: Any
    neighbors: tuple[Neighbor, ...]
    passages: tuple[MatchedPassage, ...]
    id: str | None = None
    label: Label | None = None
    note: str | None = None

    def __str__(self) -> str:
        lines = [f"text: {_short(self.text)}", f"prediction: {self.prediction}", *self._row_lines()]
        lines += ["nearest training texts:"]
        lines += [f"  {row.id} [{row.label}] {row.score:.2f} {_short(row.text)}" for row in self.neighbors]
        lines += [self.note] if self.note else ["matched passages:"]
        lines += [f"  {passage.id} {passage.score:.2f} {_short(passage.text)}" for passage in self.passages]
        return "\n".join(lines)

    def _row_lines(self) -> Iterator[str]:
        if self.id is not None:
            yield f"row: {self.id}, label {self.label}"

    def _repr_html_(self) -> str:
        about = [["text", _short(self.text)], ["prediction", self.prediction]]
        if self.id is not None:
            about.append(["row", f"{self.id}, label {self.label}"])
        near = [[row.id, row.label, *_match(row.score, row.words, row.text)] for row in self.neighbors]
        matched = [[row.id, row.source, *_match(row.score, row.words, row.text)] for row in self.passages]
        columns = ["score", "shared words", "text"]
        return (
            table_html([], about)
            + table_html(["train row", "label", *columns], near, caption="Nearest training texts")
            + table_html(["passage", "source", *columns], matched, caption=self.note or "Matched passages")
        )


def _match(score: float, words: Sequence[WordScore], text: str) -> list[str]:
    return [f"{score:.2f}", _shared(words), _short(text)]


def _short(text: str) -> str:
    return shorten(text, _CHARACTERS)


def _shared(words: Sequence[WordScore]) -> str:
    more = f", {len(words) - _WORDS} more" if len(words) > _WORDS else ""
    return ", ".join(word.word for word in words[:_WORDS]) + more


def nearest_rows(example: Example, task: Task, top: int) -> tuple[Neighbor, ...]:
    """Return the train rows with the highest BM25 scores for the words of an example, without the example itself."""
    text, key = texts_of([example])[0], normalized_key(example)
    others = [row for row in task.train if row.id != example.id]
    texts = texts_of(others)
    scorer, query = _scorer_of(text, texts)
    scored = [(scorer.word_scores(query, other), index) for index, other in enumerate(texts)]
    best = heapq.nsmallest(top, ((-_sum(words), index) for words, index in scored if words))
    return tuple(
        Neighbor(
            id=others[index].id,
            text=texts[index],
            label=others[index].label,
            score=-negative,
            words=scored[index][0],
            equal=normalized_key(others[index]) == key,
        )
        for negative, index in best
    )


def _scorer_of(text: str, texts: Sequence[str]) -> tuple[Bm25Scorer, list[QueryWord]]:
    """Return a scorer for some texts, and the words of a text that occur in them."""
    counts = Counter(words_of(text))
    frequencies: Counter[str] = Counter()
    total = 0
    for other in texts:
        words = words_of(other)
        total += len(words)
        frequencies.update(counts.keys() & set(words))
    scorer = Bm25Scorer(len(texts), total / max(1, len(texts)) or 1.0, _K1, _B)
    return scorer, [QueryWord(word, counts[word], number, scorer.idf(number)) for word, number in frequencies.items()]


def _sum(words: Iterable[WordScore]) -> float:
    return sum(word.score for word in words)


def matched_passages(run: Path, example: Example, *, is_train_row: bool, top: int) -> tuple[MatchedPassage, ...]:
    """Return the selected passages that match an example best; for a train row, those that its query retrieved."""
    if is_train_row:
        return why_example(run, example.id, top=top).passages
    rows = (row for batch in read_batches(run / "select" / SELECTION) for row in batch.to_pylist())
    return passages_for(run, texts_of([example])[0], rows, top=top)
