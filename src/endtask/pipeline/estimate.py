"""Estimate the seconds, memory and disk that a run needs; a few timed steps measure training."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from endtask.config import Budget, Settings, SizeBudget
from endtask.corpus import Corpus
from endtask.corpus.corpus import CorpusStatistics, passages_of
from endtask.corpus.reading import read_source
from endtask.corpus.sources import Source
from endtask.io.machine import usable_cores
from endtask.progress import bar
from endtask.reporting.format import duration
from endtask.retrieval.queries import build_queries, papers_top_k
from endtask.selectors.base import Selector
from endtask.task import Task

if TYPE_CHECKING:
    from endtask.training.phase import Phase

_MEASURED_BUDGET = Budget.parse("10s")
_BASE_MEMORY = 0.6e9
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments
_EXTRA_GRADIENTS = 2  # of learned weights, besides one per objective: their sum, and the held-out gradient


@dataclass(frozen=True)
class Estimate:
    """The time, memory and disk that a run needs; `seconds` by stage."""

    seconds: dict[str, float]
    memory_bytes: float
    disk_bytes: float
    corpus_bytes: float
    parameters: int
    retrieved_passages: float = 0.0
    retrieved_bytes: float = 0.0
    corpus_passages: float = 0.0
    packed_bytes: float = 0.0
    training_memory_bytes: float = 0.0
    weights_bytes: float = 0.0
    """Of all weights and checkpoints on disk."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Errors that would stop the run."""

    @property
    def total_seconds(self) -> float:
        """The sum over all stages."""
        return sum(self.seconds.values())


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """Yield the estimate as a small table."""
    stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in estimate.seconds.items())
    yield f"time      about {duration(estimate.total_seconds)} on this machine ({stages})"
    yield f"memory    about {estimate.memory_bytes / 1e9:.1f} GB"
    yield f"disk      about {estimate.disk_bytes / 1e9:.2f} GB"
    yield f"model     {estimate.parameters / 1e6:.1f} M parameters"
    if estimate.corpus_bytes:
        yield f"corpus    about {estimate.corpus_bytes / 1e6:.0f} MB of text"
    yield from (f"error: {error}" for error in estimate.errors)
    yield from (f"warning: {warning}" for warning in estimate.warnings)


@dataclass(frozen=True)
class TrainingSample:
    """A task, a sample of its train rows, the packed sample, and the phase of pre-training on it."""

    task: Task
    sample: Task
    packed: Path
    phase: Phase


def estimate_of(sample: TrainingSample, retrieval: RetrievalCost, settings: Settings) -> Estimate:
    """Return the estimate of a run, without the cost of selectors that run a model."""
    from endtask.training.budget_plan import parameters_of

    parameters = parameters_of(sample.phase)
    weights = 4.0 * parameters
    training_memory = _BASE_MEMORY + _OPTIMIZER_COPIES * weights + _separate_gradient_bytes(sample.phase)
    weights_on_disk = weights * (_finetunings(settings) + 5)
    return Estimate(
        seconds={**retrieval.seconds, "train": _training_seconds(sample, retrieval, settings)},
        memory_bytes=max(retrieval.memory_bytes, training_memory),
        disk_bytes=retrieval.disk_bytes + weights_on_disk,
        corpus_bytes=retrieval.corpus.bytes,
        parameters=parameters,
        retrieved_passages=retrieval.retrieved.passages,
        retrieved_bytes=retrieval.retrieved.bytes,
        corpus_passages=retrieval.corpus.passages,
        packed_bytes=retrieval.selected.bytes,
        training_memory_bytes=training_memory,
        weights_bytes=weights_on_disk,
    )


def _separate_gradient_bytes(phase: Phase) -> float:
    """Return the bytes of the objectives' separate gradients, which learned weights need."""
    if not phase.weighting.sees_gradients(0):
        return 0.0
    encoder: int = sum(weight.numel() for weight in phase.network.encoder.parameters())
    return 4.0 * encoder * (len(phase.weighting.schedule(0)) + _EXTRA_GRADIENTS)


def _training_seconds(sample: TrainingSample, retrieval: RetrievalCost, settings: Settings) -> float:
    """Return the seconds of pre-training and fine-tuning: the time budget, or measured over a few steps."""
    if settings.budget.seconds is not None:
        return settings.budget.seconds
    with bar("a few steps of training, timed", None):
        if settings.skip_pretraining:
            return _finetuning_seconds(sample, settings)
        return _pretraining_seconds(sample, retrieval, settings)


def _pretraining_seconds(sample: TrainingSample, retrieval: RetrievalCost, settings: Settings) -> float:
    from endtask.training.budget_plan import measure_cost, parameters_of, steps_for
    from endtask.training.reselect import with_reselection

    phase = sample.phase
    tokens = _tokens_per_reselection(sample, retrieval.selected, settings)
    step_cost = measure_cost(phase, _MEASURED_BUDGET)
    cost = with_reselection(step_cost, phase.network, tokens, parameters_of(phase), settings)
    assert cost.seconds is not None
    return steps_for(settings.budget, cost) * cost.seconds


def _tokens_per_reselection(sample: TrainingSample, selected: CorpusSize, settings: Settings) -> float:
    """Return the tokens that a re-selection reads, estimated from the selected passages and the train rows."""
    from endtask.selectors.influence.limits import BYTES_PER_TOKEN
    from endtask.tokenization.packed_texts import PackedTexts
    from endtask.training.reselect import Texts, tokens_per_round

    train, reselect = settings.pretrain, settings.pretrain.reselect
    if reselect.every is None or not selected.passages:
        return 0.0
    tokens = max(1.0, selected.bytes / selected.passages / BYTES_PER_TOKEN)
    length = min(tokens, train.max_length)
    texts = Texts(selected.passages * (1.0 if train.truncate_passages else tokens / length), length)
    row_length = PackedTexts(sample.packed / "task").lengths.mean()
    return tokens_per_round(reselect, texts, Texts(len(sample.task.train), float(row_length)))


def _finetuning_seconds(sample: TrainingSample, settings: Settings) -> float:
    from endtask.training.budget_plan import measure_cost, split_budget, steps_for

    phase = _finetune_phase(sample, settings)
    cost = measure_cost(phase, _MEASURED_BUDGET)
    assert cost.seconds is not None
    scale = train_rows(sample.task, settings) / train_rows(sample.sample, settings)
    steps = _finetunings(settings) * phase.steps * (scale if settings.finetune.max_steps is None else 1.0)
    _, share = split_budget(settings)
    return cost.seconds * (steps if share is None else min(steps, steps_for(share, cost)))


def _finetune_phase(sample: TrainingSample, settings: Settings) -> Phase:
    from endtask.training.finetune_phase import finetune_phase

    network, context, seed = sample.phase.network, sample.phase.context, settings.finetune.seeds[0]
    return finetune_phase(network, sample.sample, sample.packed, settings, context, seed=seed)


def train_rows(task: Task, settings: Settings) -> int:
    """Return the number of rows in an epoch of fine-tuning, of the end task and of auxiliary tasks."""
    return len(task.train) + sum(len(task.auxiliary[name].train) for name in settings.scored_tasks)


def _finetunings(settings: Settings) -> int:
    return len(settings.model_seeds) * len(set(settings.finetune.learning_rates))


def with_selector(
    estimate: Estimate, selector: Selector, task: Task, sample: Task, settings: Settings, folder: Path
) -> Estimate:
    """Return the estimate with the cost of a selector that runs a model, and a problem if it exceeds its share."""
    passages = max(estimate.retrieved_passages, 1.0)
    bytes_each = estimate.retrieved_bytes / passages
    cost = selector.cost(task, sample, settings, folder, candidates=passages, bytes_each=bytes_each)
    if cost is None:
        return estimate
    share, before = cost.budget_share, estimate.seconds
    allowed = math.inf if share is None else share * before["train"]
    seconds, problem = cost.within(allowed)
    problems = (f"select.share_of_budget: {problem}",) if problem else ()
    is_refused = cost.is_refused(allowed)
    return replace(
        estimate,
        seconds={"retrieve": before["retrieve"], "select": seconds, "pack": before["pack"], "train": before["train"]},
        memory_bytes=max(estimate.memory_bytes, _BASE_MEMORY + cost.memory_bytes),
        disk_bytes=estimate.disk_bytes + cost.disk_bytes,
        warnings=estimate.warnings if is_refused else (*estimate.warnings, *problems),
        errors=(*estimate.errors, *problems) if is_refused else estimate.errors,
    )


_SAMPLED_PASSAGES = 5000

# Rough measurements on an aarch64 core (ChemProt against 439 MB of text), used by the estimate only; the manifest of
# `retrieve` has the real `seconds`.
_SCAN_SECONDS_PER_BYTE = 1.2e-8
_RANK_SECONDS_PER_QUERY_AND_PASSAGE = 1e-8
_READER_BYTES = 0.2e9  # memory of a process that reads shards
_RANKED_BYTES = 36  # memory of an entry of a query's ranking while it is filled
_MOST_RANKED_BYTES = 0.7e8  # memory of the rankings that a thread fills at a time
_SCRATCH_SHARE = 0.25  # of the text: stored results of shards
_RANKING_BYTES = 16  # disk space of an entry of a query's ranking


@dataclass(frozen=True)
class CorpusSize:
    """The size of a corpus, and the seconds that a process takes to read it and cut it into passages."""

    bytes: float = 0.0
    seconds: float = 0.0
    passages: float = 0.0

    def __add__(self, other: CorpusSize) -> CorpusSize:
        return CorpusSize(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def scaled(self, factor: float) -> CorpusSize:
        """Return the size of a corpus `factor` times as large."""
        return CorpusSize(*(factor * value for value in astuple(self)))


@dataclass(frozen=True)
class RetrievalCost:
    """The cost of retrieval and packing, and the sizes of the corpus, the retrieved and the selected text."""

    seconds: dict[str, float]
    memory_bytes: float = 0.0
    disk_bytes: float = 0.0
    corpus: CorpusSize = CorpusSize()
    retrieved: CorpusSize = CorpusSize()
    selected: CorpusSize = CorpusSize()


def retrieval_cost(
    task: Task, corpus: Corpus | None, settings: Settings, *, text_bytes: float | None = None
) -> RetrievalCost:
    """Return the cost of the stages up to pack; memory depends on queries and K, not on the corpus.

    `text_bytes` is the size of a larger corpus of the same kind, to plan for.
    """
    if corpus is None or not settings.select.part_class.selects:
        return RetrievalCost({"retrieve": 0.0, "pack": 0.0})
    queries = len(build_queries(task.train))  # queries of key phrases take long to build and are about as many
    size = _corpus_size(corpus)
    if text_bytes is not None:
        size = size.scaled(text_bytes / size.bytes)
    workers = settings.threads or usable_cores()
    top_k = papers_top_k(len(task.train), settings.retrieve.top_k)
    ranked = queries * min(float(top_k), size.passages)
    reading = 2 * size.seconds + size.bytes * _SCAN_SECONDS_PER_BYTE  # read again to fetch the retrieved texts
    scoring = queries * size.passages * _RANK_SECONDS_PER_QUERY_AND_PASSAGE
    retrieved = size.scaled(min(1.0, ranked / size.passages))
    selected = size.scaled(
        min(retrieved.bytes, _budget_bytes(settings.select.budget, size, retrieved.bytes)) / size.bytes
    )
    return RetrievalCost(
        seconds={"retrieve": (reading + scoring) / workers, "pack": selected.seconds},
        memory_bytes=workers * (_READER_BYTES + min(_MOST_RANKED_BYTES, ranked * _RANKED_BYTES / workers)),
        disk_bytes=_SCRATCH_SHARE * size.bytes + ranked * _RANKING_BYTES + 0.5 * retrieved.bytes + selected.bytes,
        corpus=size,
        retrieved=retrieved,
        selected=selected,
    )


def _budget_bytes(budget: SizeBudget | None, size: CorpusSize, retrieved: float) -> float:
    """Return the bytes that a selection budget allows, estimated."""
    if budget is None:
        return size.bytes
    if budget.unit in ("bytes", "share"):
        return budget.bytes_of(size.bytes)
    return budget.amount * (retrieved if budget.unit == "retrieved" else size.bytes / size.passages)


def _corpus_size(corpus: Corpus) -> CorpusSize:
    """Return the size of a corpus, estimated from the start of each source."""
    size = sum((_source_size(source, corpus.passage_characters) for source in corpus.sources), CorpusSize())
    if not size.passages:
        CorpusStatistics().check_not_empty(corpus.sources)
    return size


def _source_size(source: Source, passage_characters: int) -> CorpusSize:
    texts: list[str] = []
    bytes_read = 0
    reads: list[tuple[int, int]] = []  # at each read of a file: (passages so far, bytes read before)

    def count_read(amount: int) -> None:
        nonlocal bytes_read
        reads.append((len(texts), bytes_read))
        bytes_read += amount

    started = time.perf_counter()
    documents = read_source(source, count_read)
    passages = (passage for document in documents for passage in passages_of(document, passage_characters))
    for _, text in islice(passages, _SAMPLED_PASSAGES):
        texts.append(text)  # appended in a loop, because `count_read` reads the length
    seconds = time.perf_counter() - started
    size = CorpusSize(bytes=sum(len(text.encode()) for text in texts), seconds=seconds, passages=len(texts))
    passages_before, bytes_before = reads[-1] if reads else (0, 0)
    if len(texts) < _SAMPLED_PASSAGES or not passages_before or not bytes_before:
        return size
    # The passages before the last read were made from the bytes read before it.
    return size.scaled(max(1.0, passages_before / len(texts) * Corpus([source]).files_bytes() / bytes_before))
