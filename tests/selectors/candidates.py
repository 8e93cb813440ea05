"""A small corpus, its retrieved passages, and the select stage over both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from endtask.config import resolve
from endtask.corpus import Corpus
from endtask.io.run_layout import PASSAGE_SIZES, RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection, write_selection
from endtask.pipeline.stages.select import select
from endtask.records import Document, Selected
from endtask.selectors.base import RunContext


def passage(index: int, rank: int, score: float, text: str = "0123456789") -> Selected:
    queries = tuple(f"query-{index}-{number}" for number in range(2))
    return Selected(Document(f"d{index}", text, "s"), index * 10, rank, score, 2, queries, "retrieved")


def write_retrieved(folder: Path, passages: list[Selected]) -> Path:
    folder.mkdir(exist_ok=True)
    write_selection(folder / RETRIEVED, passages)
    return folder


def write_corpus(folder: Path, texts: list[str], dropped: tuple[int, ...] = ()) -> Corpus:
    """Write and return a corpus, and write the sizes of its passages like the retrieve stage."""
    folder.mkdir(exist_ok=True)
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    sizes = np.asarray([len(text.encode()) for text in texts], dtype=np.uint32)
    sizes[list(dropped)] = 0
    np.save(folder / PASSAGE_SIZES, sizes)
    return Corpus.read(path)


def run_select(
    folder: Path, *, corpus: Corpus | None = None, corpus_bytes: int = 80, **values: Any
) -> tuple[dict[str, Any], list[Selected]]:
    """Run the stage over the retrieved passages in `folder`; `values` are settings and arguments of `RunContext`."""
    arguments = {name: values.pop(name) for name in ("seed", "is_contaminated", "examples") if name in values}
    output = folder / "out"
    output.mkdir(exist_ok=True)
    settings = resolve({"select": values})
    settings.select.part.preflight(None, settings, has_corpus=bool(corpus_bytes))
    run = RunContext(settings.select, folder, corpus=corpus, corpus_bytes=corpus_bytes, folder=output, **arguments)
    counts = select(run)
    assert [entry.name for entry in output.iterdir()] == [SELECTION]
    return counts, list(read_selection(output / SELECTION))
