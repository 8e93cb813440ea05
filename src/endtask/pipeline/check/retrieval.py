"""How much text there is, and what it takes until the text to train on is packed."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass
from itertools import islice

from endtask.config import Settings, SizeBudget
from endtask.corpus import Corpus
from endtask.corpus.corpus import CorpusStatistics, passages_of
from endtask.corpus.reading import read_source
from endtask.corpus.sources import Source
from endtask.io.machine import usable_cores
from endtask.retrieval.queries import papers_top_k, task_queries
from endtask.task import Task

_SAMPLED_PASSAGES = 5000

# Rough figures of one aarch64 core (ChemProt against 439 MB of text); only the estimate uses them, and `seconds` in the
# manifest of `retrieve` says what it really took.
_SCAN_SECONDS_PER_BYTE = 1.2e-8
_RANK_SECONDS_PER_QUERY_AND_PASSAGE = 1e-8
_READER_BYTES = 0.2e9  # of memory: a process that reads, whatever it reads
_RANKED_BYTES = 36  # of memory: a place in a query's ranking while it is filled
_MOST_RANKED_BYTES = 0.7e8  # of memory: all that one thread fills at a time
_SCRATCH_SHARE = 0.25  # of the text: what is kept of each shard
_RANKING_BYTES = 16  # on disk: a place in a query's ranking


@dataclass(frozen=True)
class CorpusSize:
    """How much text there is, and the seconds one process takes to read it and cut it into passages."""

    bytes: float = 0.0
    seconds: float = 0.0
    passages: float = 0.0

    def __add__(self, other: CorpusSize) -> CorpusSize:
        return CorpusSize(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def scaled(self, factor: float) -> CorpusSize:
        """The size of a corpus `factor` times as large."""
        return CorpusSize(*(factor * value for value in astuple(self)))


@dataclass(frozen=True)
class RetrievalCost:
    """What retrieving and packing take, and how much text there is, is found and is kept; `seconds` by stage."""

    seconds: dict[str, float]
    memory_bytes: float = 0.0
    disk_bytes: float = 0.0
    corpus: CorpusSize = CorpusSize()
    retrieved: CorpusSize = CorpusSize()
    kept: CorpusSize = CorpusSize()


def retrieval_cost(task: Task, corpus: Corpus | None, settings: Settings) -> RetrievalCost:
    """What it takes until the text to train on is packed; the memory is set by queries and K, not by the corpus."""
    queries = _count_queries(task, settings)
    if corpus is None or not settings.select.part_class.selects:
        return RetrievalCost({"retrieve": 0.0, "pack": 0.0})
    size = _sample(corpus)
    workers = settings.threads or usable_cores()
    top_k = settings.retrieve.top_k
    if top_k == "auto":
        top_k = papers_top_k(len(task.train), settings.retrieve.large_scale)
    ranked = queries * min(float(top_k), size.passages)
    reading = 2 * size.seconds + size.bytes * _SCAN_SECONDS_PER_BYTE  # and once more for the texts that were asked for
    scoring = queries * size.passages * _RANK_SECONDS_PER_QUERY_AND_PASSAGE
    retrieved = size.scaled(min(1.0, ranked / size.passages))
    kept = size.scaled(min(retrieved.bytes, _budget_bytes(settings.select.budget, size, retrieved.bytes)) / size.bytes)
    return RetrievalCost(
        seconds={"retrieve": (reading + scoring) / workers, "pack": kept.seconds},
        memory_bytes=workers * (_READER_BYTES + min(_MOST_RANKED_BYTES, ranked * _RANKED_BYTES / workers)),
        disk_bytes=_SCRATCH_SHARE * size.bytes + ranked * _RANKING_BYTES + 0.5 * retrieved.bytes + kept.bytes,
        corpus=size,
        retrieved=retrieved,
        kept=kept,
    )


def _count_queries(task: Task, settings: Settings) -> int:
    # Key phrases take long to find and make about as many queries.
    asked = settings.retrieve.model_copy(update={"query": "full"})
    return len(task_queries(task, asked, settings.task.columns).queries)


def _budget_bytes(budget: SizeBudget | None, size: CorpusSize, retrieved: float) -> float:
    """About how much text a budget lets through."""
    if budget is None:
        return size.bytes
    per_unit = {"bytes": 1.0, "share": size.bytes, "passages": size.bytes / size.passages, "retrieved": retrieved}
    return budget.amount * per_unit[budget.unit]


def _sample(corpus: Corpus) -> CorpusSize:
    """The size of a corpus, from the start of each source."""
    size = sum((_sample_source(source, corpus.passage_characters) for source in corpus.sources), CorpusSize())
    if not size.passages:
        CorpusStatistics().check_not_empty(corpus.sources)
    return size


def _sample_source(source: Source, passage_characters: int) -> CorpusSize:
    texts: list[str] = []
    read = 0
    ticks: list[tuple[int, int]] = []  # whenever the reader fetches more: (passages seen, bytes it had fetched before)

    def fetched(amount: int) -> None:
        nonlocal read
        ticks.append((len(texts), read))
        read += amount

    started = time.perf_counter()
    passages = (pair for reading in read_source(source, fetched) for pair in passages_of(reading, passage_characters))
    for _, text in islice(passages, _SAMPLED_PASSAGES):
        texts.append(text)  # one by one, as `fetched` counts them
    seconds = time.perf_counter() - started
    size = CorpusSize(bytes=sum(len(text.encode()) for text in texts), seconds=seconds, passages=len(texts))
    seen, consumed = ticks[-1] if ticks else (0, 0)
    if len(texts) < _SAMPLED_PASSAGES or not seen or not consumed:
        return size
    # What had been fetched before the last fetch is what the passages until then were made of.
    return size.scaled(max(1.0, seen / len(texts) * Corpus([source]).files_bytes() / consumed))
