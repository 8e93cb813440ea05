"""Search in the selection of a run: by words, source, class of the best query and score, best rank first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_batches, read_selection
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.selection import MatchedPair, explain

Batch = Any
_COLUMNS = ("id", "source", "title", "text", "position", "rank", "score", "matched_queries")
_TEXTS = ("text", "title", "id")


@dataclass(frozen=True)
class PassageFilter:
    """Which passages to find; every word must occur in text, title or id, and an empty value lets all pass."""

    words: tuple[str, ...] = ()
    source: str = ""
    label: str = ""
    least_score: float | None = None


@dataclass(frozen=True)
class FoundPassages:
    """The number of selected passages, of those that pass the filter, and a page of these."""

    total: int
    matching: int
    pairs: tuple[MatchedPair, ...]


def search_passages(run: RunFolder, wanted: PassageFilter, *, offset: int, limit: int) -> FoundPassages:
    """Return a page of the passages that pass a filter; the table is read in batches, texts only of the page."""
    if not run.has_selection:
        return FoundPassages(0, 0, ())
    table = run.file("select", SELECTION)
    labels = _train_labels(run) if wanted.label else {}
    total = matching = 0

    def passing() -> Iterator[tuple[int, float, int, int]]:
        nonlocal total, matching
        for batch in read_batches(table, columns=_COLUMNS):
            rows = np.flatnonzero(_mask(batch, wanted, labels))
            start, total = total, total + len(batch)
            matching += len(rows)
            ranks, scores, positions = (batch.column(name).to_numpy() for name in ("rank", "score", "position"))
            yield from ((int(ranks[i]), -float(scores[i]), int(positions[i]), start + int(i)) for i in rows)

    best = [row for *_, row in heapq.nsmallest(offset + limit, passing())][offset:]
    return FoundPassages(total, matching, _explained(run, table, best, total))


def _explained(run: RunFolder, table: Path, rows: list[int], total: int) -> tuple[MatchedPair, ...]:
    """Return the passages in some rows of the table with their best queries, in the order of the rows."""
    mask = np.zeros(total, dtype=np.bool_)
    mask[rows] = True
    found = dict(zip(sorted(rows), read_selection(table, mask), strict=True))
    pairs = {pair.passage_id: pair for pair in explain(found.values(), run.examples("train"))}
    return tuple(pairs[found[row].document.id] for row in rows)


def _mask(batch: Batch, wanted: PassageFilter, labels: dict[str, str]) -> Any:
    """Return which passages of a batch pass."""
    import pyarrow.compute as compute

    passes = np.ones(len(batch), dtype=np.bool_)
    for word in wanted.words:
        hits = np.zeros(len(batch), dtype=np.bool_)
        for name in _TEXTS:
            matches = compute.match_substring(batch.column(name), word, ignore_case=True)
            hits |= compute.fill_null(matches, False).to_numpy(zero_copy_only=False)
        passes &= hits
    if wanted.source:
        passes &= compute.equal(batch.column("source"), wanted.source).to_numpy(zero_copy_only=False)
    if wanted.least_score is not None:
        passes &= batch.column("score").to_numpy() >= wanted.least_score
    if wanted.label:
        queries = batch.column("matched_queries").to_pylist()
        passes &= np.asarray([bool(ids) and labels.get(ids[0]) == wanted.label for ids in queries], dtype=np.bool_)
    return passes


def _train_labels(run: RunFolder) -> dict[str, str]:
    return {row["id"]: row["label"] for row in run.examples("train") if isinstance(row.get("label"), str)}
