"""The folder of a run that ended after `select`, written without endtask's stages and scored by bm25s."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet

from endtask.io.run_layout import QUERIES, QUERY_WORDS, RETRIEVED, SELECTION, SETTINGS_FILE
from endtask.io.selection_table import write_selection
from endtask.io.stage_files import MANIFEST
from endtask.records import Document, Example, Selected
from endtask.retrieval.words import words_of

K1, B = 1.2, 0.75


def write_run(
    folder: Path,
    documents: Sequence[Document],
    examples: Sequence[Example],
    *,
    selected: Collection[int],
    top_k: int = 5,
    queries_stored: int = 20,
) -> Path:
    """Write the folders of `read`, `retrieve` and `select`; `selected` are positions of passages."""
    passages = [words_of(document.text) for document in documents]
    queries: dict[tuple[str, ...], list[str]] = {}
    for example in examples:
        queries.setdefault(tuple(words_of(example.text)), []).append(example.id)
    queries.pop((), None)
    retrieved = _retrieved(documents, passages, queries, top_k, queries_stored)
    counts = {
        "passages": len(retrieved),
        "passages_scored": len(documents),
        "mean_length": sum(map(len, passages)) / len(passages),
        "k1": K1,
        "b": B,
    }
    for stage in ("read", "retrieve", "select"):
        (folder / stage).mkdir(parents=True)
        manifest = {"fingerprint": stage, "status": "finished", "counts": counts if stage == "retrieve" else {}}
        (folder / stage / MANIFEST).write_text(json.dumps(manifest))
    (folder / SETTINGS_FILE).write_text("")
    rows = [{"id": example.id, "text": example.text, "label": example.label} for example in examples]
    (folder / "read" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    dev = {"id": "dev-0", "text": "never asks", "label": "food"}
    (folder / "read" / "dev.jsonl").write_text(json.dumps(dev) + "\n", encoding="utf-8")
    write_selection(folder / "retrieve" / RETRIEVED, retrieved)
    write_selection(folder / "select" / SELECTION, [item for item in retrieved if item.position in selected])
    _write_words(folder / "retrieve", passages, queries)
    return folder


def _retrieved(
    documents: Sequence[Document],
    passages: list[list[str]],
    queries: dict[tuple[str, ...], list[str]],
    top_k: int,
    queries_stored: int,
) -> list[Selected]:
    """Return the passages that match a query, in corpus order, ranked query by query."""
    scorer = bm25s.BM25(method="lucene", k1=K1, b=B)
    scorer.index(passages, show_progress=False)
    matches: dict[int, list[tuple[int, float, int]]] = {}
    for number, words in enumerate(queries):
        known = [word for word in words if any(word in passage for passage in passages)]
        scores = scorer.get_scores(known) if known else np.zeros(len(passages))
        order = [position for position in np.argsort(-scores, kind="stable")[:top_k].tolist() if scores[position] > 0]
        for rank, position in enumerate(order, start=1):
            matches.setdefault(position, []).append((rank, -float(scores[position]), number))
    ids = list(queries.values())
    return [
        Selected(
            document=documents[position],
            position=position,
            rank=min(entries)[0],
            score=-min(entries)[1],
            matched_count=sum(len(ids[number]) for _, _, number in entries),
            matched_queries=tuple(name for _, _, number in sorted(entries) for name in ids[number])[:queries_stored],
            reason="best_rank",
        )
        for position, entries in sorted(matches.items())
    ]


def _write_words(folder: Path, passages: list[list[str]], queries: dict[tuple[str, ...], list[str]]) -> None:
    frequency = Counter(word for passage in passages for word in set(passage))
    known = sorted({word for words in queries for word in words if word in frequency})
    write_columns(folder / QUERY_WORDS, word=known, document_frequency=[frequency[word] for word in known])
    write_columns(folder / QUERIES, words=[list(words) for words in queries], example_ids=list(queries.values()))


def write_columns(path: Path, row_group_size: int = 2, **columns: list[Any]) -> None:
    """Write a table in small row groups, so that readers must read several."""
    parquet.write_table(arrow.table(columns), path, row_group_size=row_group_size)
