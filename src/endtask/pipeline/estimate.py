"""Estimate what a run needs: seconds by stage, memory and disk; a short trial times training."""

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

_TIMED = Budget.parse("10s")
_MEMORY_AT_REST = 0.6e9
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments
_MORE_GRADIENTS = 2  # of learned weights, in addition to one per objective: their sum, and that of held-out data


@dataclass(frozen=True)
class Estimate:
    """What a run needs; `seconds` by stage."""

    seconds: dict[str, float]
    memory_bytes: float
    disk_bytes: float
    corpus_bytes: float
    parameters: int
    retrieved_passages: float = 0.0
    retrieved_bytes: float = 0.0
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Errors that a run would stop with."""

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
class Trial:
    """A task, a sample of its train rows, the packed sample, and pre-training on it."""

    task: Task
    sample: Task
    packed: Path
    phase: Phase


def estimate_of(trial: Trial, retrieval: RetrievalCost, settings: Settings) -> Estimate:
    """Return what the run needs."""
    from endtask.training.budget_plan import parameters_of

    parameters = parameters_of(trial.phase)
    weights = 4.0 * parameters
    training_memory = _MEMORY_AT_REST + _OPTIMIZER_COPIES * weights + _separate_gradient_bytes(trial.phase)
    return Estimate(
        seconds={**retrieval.seconds, "train": _training_seconds(trial, retrieval, settings)},
        memory_bytes=max(retrieval.memory_bytes, training_memory),
        disk_bytes=retrieval.disk_bytes + weights * (_finetunings(settings) + 5),
        corpus_bytes=retrieval.corpus.bytes,
        parameters=parameters,
        retrieved_passages=retrieval.retrieved.passages,
        retrieved_bytes=retrieval.retrieved.bytes,
    )


def _separate_gradient_bytes(phase: Phase) -> float:
    """Return the bytes of the separate gradients per objective that learned weights read."""
    if not phase.weighting.sees_gradients(0):
        return 0.0
    encoder: int = sum(weight.numel() for weight in phase.network.encoder.parameters())
    return 4.0 * encoder * (len(phase.weighting.schedule(0)) + _MORE_GRADIENTS)


def _training_seconds(trial: Trial, retrieval: RetrievalCost, settings: Settings) -> float:
    """Return the seconds of pre-training and fine-tuning: the budget, or measured over a few steps."""
    if settings.budget.seconds is not None:
        return settings.budget.seconds + _beyond_budget(trial, settings)
    with bar("a few steps of training, timed", None):
        return _finetuning(trial, settings) if settings.skip_pretraining else _pretraining(trial, retrieval, settings)


def _pretraining(trial: Trial, retrieval: RetrievalCost, settings: Settings) -> float:
    from endtask.training.budget_plan import measure_cost, parameters_of, steps_for
    from endtask.training.reselect import with_reselection

    phase = trial.phase
    read = _tokens_per_reselection(trial, retrieval.selected, settings)
    cost = with_reselection(measure_cost(phase, _TIMED), phase.network, read, parameters_of(phase), settings)
    assert cost.seconds is not None
    return steps_for(settings.budget, cost) * cost.seconds


def _tokens_per_reselection(trial: Trial, selected: CorpusSize, settings: Settings) -> float:
    """Return the tokens that a re-selection reads, estimated from the selected passages and the train rows."""
    from endtask.selectors.influence.limits import BYTES_PER_TOKEN
    from endtask.tokenization.packed_texts import PackedTexts
    from endtask.training.reselect import Texts, read_in_a_round

    train, reselect = settings.pretrain, settings.pretrain.reselect
    if reselect.every is None or not selected.passages:
        return 0.0
    each = max(1.0, selected.bytes / selected.passages / BYTES_PER_TOKEN)
    cut = min(each, train.max_length)
    texts = Texts(selected.passages * (1.0 if train.truncate_passages else each / cut), cut)
    mean = PackedTexts(trial.packed / "task").lengths.mean()
    return read_in_a_round(reselect, texts, Texts(len(trial.task.train), float(mean)))


def _beyond_budget(trial: Trial, settings: Settings) -> float:
    """Return the seconds by which one epoch per fine-tuning exceeds what the budget leaves for it."""
    from endtask.training.budget_plan import measure_cost, split_budget
    from endtask.training.finetune import END_TASK, steps_per_epoch

    _, share = split_budget(settings)
    if share is None:
        return 0.0
    phase = _finetune_phase(trial, settings)
    seconds = measure_cost(phase, _TIMED).seconds
    assert seconds is not None
    epoch = steps_per_epoch(phase.objectives[END_TASK]) * len(trial.task.train) / len(trial.sample.train)
    steps = min(epoch, settings.finetune.max_steps or epoch) * _finetunings(settings)
    return max(0.0, seconds * steps - share.amount)


def _finetuning(trial: Trial, settings: Settings) -> float:
    from endtask.training.budget_plan import measure_cost, split_budget, steps_for

    phase = _finetune_phase(trial, settings)
    cost = measure_cost(phase, _TIMED)
    assert cost.seconds is not None
    scale = train_rows(trial.task, settings) / train_rows(trial.sample, settings)
    steps = _finetunings(settings) * phase.steps * (scale if settings.finetune.max_steps is None else 1.0)
    _, share = split_budget(settings)
    return cost.seconds * (steps if share is None else min(steps, steps_for(share, cost)))


def _finetune_phase(trial: Trial, settings: Settings) -> Phase:
    from endtask.training.finetune import finetune_phase

    network, context, seed = trial.phase.network, trial.phase.context, settings.finetune.seeds[0]
    return finetune_phase(network, trial.sample, trial.packed, settings, context, seed=seed)


def train_rows(task: Task, settings: Settings) -> int:
    """Return the rows of an epoch of fine-tuning: those of the end task and of auxiliary tasks."""
    return sum(len(learned.train) for learned in (task, *(task.auxiliary[name] for name in settings.scored_tasks)))


def _finetunings(settings: Settings) -> int:
    return len(settings.model_seeds) * len(set(settings.finetune.learning_rates))


def with_selector(
    estimate: Estimate, selector: Selector, task: Task, sample: Task, settings: Settings, folder: Path
) -> Estimate:
    """Return the estimate with the cost of a selector that runs a model, within its share of the budget."""
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
        memory_bytes=max(estimate.memory_bytes, _MEMORY_AT_REST + cost.memory_bytes),
        disk_bytes=estimate.disk_bytes + cost.disk_bytes,
        warnings=estimate.warnings if is_refused else (*estimate.warnings, *problems),
        errors=(*estimate.errors, *problems) if is_refused else estimate.errors,
    )


_SAMPLED_PASSAGES = 5000

# Rough measurements of one aarch64 core (ChemProt against 439 MB of text), for the estimate alone; `seconds` in the
# manifest of `retrieve` says what it really took.
_SCAN_SECONDS_PER_BYTE = 1.2e-8
_RANK_SECONDS_PER_QUERY_AND_PASSAGE = 1e-8
_READER_BYTES = 0.2e9  # of memory: a process that reads, whatever it reads
_RANKED_BYTES = 36  # of memory: an entry of a query's ranking while it is filled
_MOST_RANKED_BYTES = 0.7e8  # of memory: all that one thread fills at a time
_SCRATCH_SHARE = 0.25  # of the text: what each shard stores
_RANKING_BYTES = 16  # on disk: an entry of a query's ranking


@dataclass(frozen=True)
class CorpusSize:
    """The size of a corpus, and the seconds that one process takes to read it and cut it into passages."""

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
    """The cost of retrieving and packing, and the sizes of the corpus, retrieved and selected text."""

    seconds: dict[str, float]
    memory_bytes: float = 0.0
    disk_bytes: float = 0.0
    corpus: CorpusSize = CorpusSize()
    retrieved: CorpusSize = CorpusSize()
    selected: CorpusSize = CorpusSize()


def retrieval_cost(task: Task, corpus: Corpus | None, settings: Settings) -> RetrievalCost:
    """Return the cost up to packed text; memory depends on queries and K, not on the corpus."""
    queries = len(build_queries(task.train))  # key phrases take long to find and make about as many
    if corpus is None or not settings.select.part_class.selects:
        return RetrievalCost({"retrieve": 0.0, "pack": 0.0})
    size = _sample(corpus)
    workers = settings.threads or usable_cores()
    top_k = papers_top_k(len(task.train), settings.retrieve.top_k)
    ranked = queries * min(float(top_k), size.passages)
    reading = 2 * size.seconds + size.bytes * _SCAN_SECONDS_PER_BYTE  # the second time for the retrieved texts
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
    """Return about how many bytes a budget allows."""
    if budget is None:
        return size.bytes
    per_unit = {"bytes": 1.0, "share": size.bytes, "passages": size.bytes / size.passages, "retrieved": retrieved}
    return budget.amount * per_unit[budget.unit]


def _sample(corpus: Corpus) -> CorpusSize:
    """Estimate the size of a corpus from the start of each source."""
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
