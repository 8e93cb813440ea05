"""The inputs of all engines: parts of a corpus as files, the generated corpus, and task texts as queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generate_corpus import generate
from endtask.corpus import Corpus
from endtask.io.atomic import write_json, write_text
from endtask.io.compression import atomic_compressed_file
from endtask.io.tables import Row, read_rows
from endtask.retrieval.words import words_of
from endtask.task import remove_entity_markers

SHARDS = 20
GENERATED_QUERIES = 4_000
_SEED = 0


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a corpus, and the amount of their text."""

    paths: tuple[str, ...]
    passages: int
    text_bytes: int


def whole_corpus(corpus: Path, scratch: Path) -> CorpusFiles:
    """Return all files of the corpus."""
    return _counted(sorted(corpus.glob("*.jsonl.zst")), scratch / "full.json")


def cut_corpus(corpus: Path, scratch: Path, text_bytes: int) -> CorpusFiles:
    """Write and return the same share of first rows of every file, so that the sources are mixed as in the whole.

    A larger cut contains every smaller one.
    """
    folder = scratch / f"cut-{text_bytes}"
    folder.mkdir(parents=True, exist_ok=True)
    share = text_bytes / whole_corpus(corpus, scratch).text_bytes
    paths = [folder / path.name for path in sorted(corpus.glob("*.jsonl.zst"))]
    for path in paths:
        if not path.exists():
            _write_rows(path, _first_rows(corpus / path.name, share))
    return _counted(paths, folder / "counts.json")


def generated_corpus(scratch: Path, text_bytes: int, whole_bytes: int) -> CorpusFiles:
    """Return the first shards of the generated corpus, which is made once in its whole size."""
    folder = scratch / f"generated-{whole_bytes}"
    paths = generate(folder, text_bytes=whole_bytes, seed=_SEED, shards=SHARDS, queries=GENERATED_QUERIES)
    first = paths[: round(SHARDS * text_bytes / whole_bytes)]
    return _counted(first, folder / f"counts-{len(first)}.json")


def task_queries(train: Path) -> list[str]:
    """Return the texts of a task without entity markers; texts with the same words count once."""
    texts = (remove_entity_markers(row["text"]) for _, row in read_rows(train))
    return list({tuple(words): text for text in texts if (words := words_of(text))}.values())


def write_queries(path: Path, queries: Iterable[str]) -> None:
    """Write a JSON string per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(query) + "\n" for query in queries))


def read_queries(path: Path) -> list[str]:
    """Read queries that `write_queries` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _first_rows(path: Path, share: float) -> Iterator[Row]:
    rows = [row for _, row in read_rows(path)]
    remaining = share * sum(len(row["text"].encode()) for row in rows)
    for row in rows:
        remaining -= len(row["text"].encode())
        if remaining < 0:
            return
        yield row


def _write_rows(path: Path, rows: Iterable[Row]) -> None:
    with atomic_compressed_file(path) as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _counted(paths: list[Path], counts_file: Path) -> CorpusFiles:
    """Return the files with the passages and bytes that the reader counts once and stores in a file."""
    names = tuple(str(path) for path in paths)
    if not counts_file.exists():
        corpus = Corpus.read(names)
        passages = sum(1 for _ in corpus.documents())
        counts_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(counts_file, {"passages": passages, "text_bytes": corpus.statistics.total.bytes})
    counts = json.loads(counts_file.read_text(encoding="utf-8"))
    return CorpusFiles(names, counts["passages"], counts["text_bytes"])
