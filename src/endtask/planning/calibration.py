"""Measure this machine for about 20 seconds: retrieval over samples of the user's corpus with the user's queries."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from endtask.config import RetrieveSettings, Settings
from endtask.corpus import Corpus
from endtask.corpus.corpus import passages_of
from endtask.corpus.reading import read_source
from endtask.executors.base import Executor
from endtask.executors.processes import LocalExecutor
from endtask.io.atomic import write_text
from endtask.planning.measured import MeasuredRetrieval, Pair, Rates, Retrieval, TimedExecutor, fit_rates
from endtask.progress import bar, quiet
from endtask.retrieval.queries import papers_top_k
from endtask.retrieval.retrieve import RetrievePaths, retrieve
from endtask.task import Task

SECONDS = 20.0
_SAMPLE_BYTES = 32_000_000
_READING_SHARE = 0.2
"""Of the time: reading passages of the user's files."""
_QUERIES = 1000
_FEWER = 20
"""How many times fewer queries and passages per query the retrieval of few queries has."""


@dataclass(frozen=True)
class Sample:
    """Passages of a corpus, the seconds that a byte of text takes to read, and its bytes in the stored files."""

    texts: list[str]
    seconds: float
    stored_share: float


def calibrate(task: Task, corpus: Corpus, settings: Settings, *, seconds: float = SECONDS) -> tuple[Rates, float]:
    """Return the rates of one core of this machine for this corpus and these queries, and `Sample.stored_share`."""
    with TemporaryDirectory() as name, bar("measure this machine", None), quiet():
        sample = _sampled(corpus, seconds * _READING_SHARE)
        files = _write_samples(sample.texts, Path(name))
        rates, last = _rates_of(files, task, settings.retrieve, Path(name))
        plain = _reading_seconds(files[-1]) / last.size.text_bytes
    return _with_format(rates, sample.seconds - plain), sample.stored_share


def _rates_of(
    files: Sequence[Path], task: Task, settings: RetrieveSettings, folder: Path
) -> tuple[Rates, MeasuredRetrieval]:
    """Return the rates from retrievals over a half and the whole of the sample, and the measurement of the whole."""
    top_k = papers_top_k(len(task.train), settings.top_k)
    few = max(1, top_k // _FEWER), max(1, min(_QUERIES, len(task.train)) // _FEWER)
    plans = [(files[0], *few), *((file, *few) for file in files), *((file, top_k, _QUERIES) for file in files)]
    measured = []
    for number, (file, best, queries) in enumerate(plans):
        drawn = replace(task, splits={**task.splits, "train": task.train[:queries]})
        options = settings.model_copy(update={"top_k": best})
        measured.append(
            measure_retrieval(drawn, Corpus.read(file), options, folder / f"run-{number}", LocalExecutor(1))
        )
    _, few_of_half, few_of_whole, half, whole = measured  # the first one loads or compiles the kernels
    return replace(fit_rates([half, whole]), driver=_driver_rates(few_of_half, few_of_whole, whole)), whole


def _driver_rates(few_of_half: MeasuredRetrieval, few_of_whole: MeasuredRetrieval, whole: MeasuredRetrieval) -> Pair:
    """Return the driver's seconds for each passage and for each byte of a passage found.

    All queries find nearly every passage of so small a sample, so that only retrievals of few queries tell the two
    apart.
    """
    passages = few_of_whole.size.passages - few_of_half.size.passages
    seconds = few_of_whole.seconds["driver"] - few_of_half.seconds["driver"]
    rest = whole.seconds["driver"] - few_of_whole.seconds["driver"]
    return max(0.0, seconds) / max(1.0, passages), max(0.0, rest) / max(1.0, whole.found_bytes)


def _with_format(rates: Rates, more: float) -> Rates:
    """Return rates for files that take more seconds a byte to read than the samples, or fewer; both are read twice."""
    statistics, fetching = rates.statistics, rates.fetching
    return replace(
        rates,
        statistics=(statistics[0], max(0.0, statistics[1] + more)),
        fetching=(max(0.0, fetching[0] + more), fetching[1]),
    )


def _sampled(corpus: Corpus, seconds: float) -> Sample:
    """Read the first passages of each source."""
    texts: list[str] = []
    read: list[int] = []
    size, spent, sources = 0, 0.0, len(corpus.sources)
    for source in corpus.sources:
        started, before = time.perf_counter(), size
        for document in read_source(source, read.append):
            passages = [text for _, text in passages_of(document, corpus.passage_characters)]
            texts += passages
            size += sum(len(text.encode()) for text in passages)
            if time.perf_counter() - started > seconds / sources or size - before > _SAMPLE_BYTES / sources:
                break
        spent += time.perf_counter() - started
    return Sample(texts, spent / max(1, size), sum(read) / max(1, size))


def _write_samples(texts: list[str], folder: Path) -> list[Path]:
    """Write a half and the whole of the sample, so that rates and fixed costs can be told apart."""
    paths = []
    for number, count in enumerate((len(texts) // 2 or 1, len(texts))):
        path = folder / f"sample-{number}.jsonl"
        step = max(1, len(texts) // count)  # every second text, so that both have the same mixture of sources
        write_text(path, "".join(json.dumps({"text": text}) + "\n" for text in texts[::step][:count]))
        paths.append(path)
    return paths


def measure_retrieval(
    task: Task, corpus: Corpus, settings: RetrieveSettings, folder: Path, executor: Executor
) -> MeasuredRetrieval:
    """Run retrieval in an empty folder, and return what it took."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    timed = TimedExecutor(executor)
    started = time.perf_counter()
    counts = retrieve(task, corpus, settings, RetrievePaths(folder, scratch, timed))
    driver = time.perf_counter() - started - sum(timed.seconds.values())
    read = counts["corpus"]
    size = Retrieval(read["bytes"], read["passages"], counts["queries"], counts["top_k"], corpus.files_bytes())
    used = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
    return MeasuredRetrieval(size, executor.workers, {**timed.seconds, "driver": driver}, counts["passages"], used)


def _reading_seconds(file: Path) -> float:
    """Return how long reading the passages of a sample takes."""
    started = time.perf_counter()
    corpus = Corpus.read(file)
    for document in read_source(corpus.sources[0]):
        list(passages_of(document, corpus.passage_characters))
    return time.perf_counter() - started
