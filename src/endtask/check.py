"""Look before spending: problems of the data, examples as the model will see them, and what the run would cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.ahead import check_ahead
from endtask.corpus import Corpus
from endtask.corpus.corpus import passages_of
from endtask.corpus.reading import read_source
from endtask.corpus.sources import Source
from endtask.corpus.statistics import CorpusStatistics
from endtask.files.machine import usable_cores
from endtask.files.selection_table import write_selection
from endtask.records import Example
from endtask.report.format import duration
from endtask.retrieve.queries import papers_top_k, task_queries
from endtask.settings import BatchSize, ObjectiveSettings, Settings, SizeBudget
from endtask.settings.objectives import KINDS
from endtask.settings.uses import Use, use_lines, uses_of
from endtask.task import Audit, Task, audit

if TYPE_CHECKING:
    from endtask.objectives.stream import TextStream
    from endtask.train.loop import Phase

_SAMPLED_PASSAGES = 5000
_SAMPLED_EXAMPLES = 2000

# Rough figures of one aarch64 core (ChemProt against 439 MB of text); only the estimate uses them, and `seconds` in the
# manifest of `retrieve` says what it really took.
_SCAN_SECONDS_PER_BYTE = 1.2e-8
_RANK_SECONDS_PER_QUERY_AND_PASSAGE = 1e-8
_READER_BYTES = 0.2e9  # of memory: a process that reads, whatever it reads
_RANKED_BYTES = 36  # of memory: a place in a query's ranking while it is filled
_MOST_RANKED_BYTES = 0.7e8  # of memory: all that one thread fills at a time
_SCRATCH_SHARE = 0.25  # of the text: what is kept of each shard
_RANKING_BYTES = 16  # on disk: a place in a query's ranking
_MEMORY_AT_REST = 0.6e9
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments
_MORE_GRADIENTS = 2  # of learned weights, beside one per objective: their sum, and that of held-out data


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
class Estimate:
    """What a run would need; `seconds` by stage."""

    seconds: dict[str, float]
    memory_bytes: float
    disk_bytes: float
    corpus_bytes: float
    parameters: int
    retrieved_passages: float = 0.0
    retrieved_bytes: float = 0.0

    @property
    def total_seconds(self) -> float:
        """All stages together."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class CheckResult:
    """Everything `endtask check` found."""

    audit: Audit
    examples: tuple[dict[str, str], ...]
    estimate: Estimate | None
    uses: tuple[Use, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        estimate = {**asdict(self.estimate), "total_seconds": self.estimate.total_seconds} if self.estimate else None
        return {
            "audit": self.audit.to_dict(),
            "examples": list(self.examples),
            "uses": [asdict(use) for use in self.uses],
            "estimate": estimate,
        }

    def lines(self) -> Iterator[str]:
        """The findings for people."""
        yield from self.audit.lines()
        for example in self.examples:
            yield ""
            yield from (f"{name:9} {value}" for name, value in example.items())
        if self.uses:
            yield ""
            yield from use_lines(self.uses)
        if self.estimate:
            yield ""
            yield from estimate_lines(self.estimate)


def check(settings: Settings) -> CheckResult:
    """Read and audit the task, find the corpus's files, tokenise and mask examples, and estimate the cost."""
    from endtask.train.meta_folds import groups_in
    from endtask.train.pretrain import pretrain_phase

    task = Task.read(settings.task, seed=settings.seed)
    corpus = Corpus.read(settings.corpus) if settings.corpus.sources else None
    check_ahead(task, settings)
    _find_aligned(settings)
    queries = _count_queries(task, settings)
    with tempfile.TemporaryDirectory() as name:
        few = _sampled(task)
        packed = _pack_task(few, settings, Path(name))
        standing_in = _on_task_text(settings)
        phase = pretrain_phase(few, packed, standing_in)
        training = _training_seconds(task, few, packed, phase, settings)
        estimate = _estimate(task, queries, corpus, phase, training, settings)
        if settings.select.uses_influence:
            estimate = _with_influence(estimate, task, few, settings, Path(name))
        examples = _examples(few, packed, _shown_stream(phase, standing_in))
        return CheckResult(audit(task), examples, estimate, uses_of(settings, groups=groups_in(task.train)))


def _find_aligned(settings: Settings) -> None:
    """The files of aligned objectives must be there; a run meets them in its fingerprints."""
    if settings.reads_aligned:
        from endtask.text.span_finders import span_finder

        Corpus.aligned(settings.aligned, settings.corpus)
        span_finder(settings.aligned)


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """The estimate as a small table."""
    stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in estimate.seconds.items())
    yield f"time      about {duration(estimate.total_seconds)} on this machine ({stages})"
    yield f"memory    about {estimate.memory_bytes / 1e9:.1f} GB"
    yield f"disk      about {estimate.disk_bytes / 1e9:.2f} GB"
    yield f"model     {estimate.parameters / 1e6:.1f} M parameters"
    if estimate.corpus_bytes:
        yield f"corpus    about {estimate.corpus_bytes / 1e6:.0f} MB of text"


def _sampled(task: Task) -> Task:
    """The task with train texts from all over the split, no more than tell their lengths and words."""
    step = max(1, len(task.train) // _SAMPLED_EXAMPLES)
    return replace(task, splits={"train": task.train[::step]})


def _on_task_text(settings: Settings) -> Settings:
    """The settings for a stage 1 that has nothing but the task's train texts: other text is not drawn yet."""
    train = settings.train
    objectives = {name: _standing_in(one, train.batch_size) for name, one in train.objectives.items() if one.weight}
    meta = train.meta.model_copy(update={"split": "folds"})
    changes = {"rho1": 0, "order": "shuffled", "objectives": objectives, "meta": meta}
    return settings.model_copy(update={"train": train.model_copy(update=changes)})


def _standing_in(asked: ObjectiveSettings, batch_size: BatchSize) -> ObjectiveSettings:
    """An objective of about the same cost on the task's texts."""
    if asked.reads == "task":
        return asked
    changes = {"kind": "mlm", "texts": "task", "batch_size": asked.batch_size or batch_size}
    return asked.model_copy(update=changes)


def _shown_stream(phase: Phase, settings: Settings) -> TextStream:
    """The batches of the first objective that hides tokens, or of the first of all."""
    used = settings.train.used_objectives
    names = [name for name in phase.objectives if KINDS[used[name].kind].masks] or list(phase.objectives)
    stream: TextStream = phase.objectives[names[0]].stream  # type: ignore[attr-defined]
    return stream


def _pack_task(task: Task, settings: Settings, folder: Path) -> Path:
    from endtask.text.pack import pack

    write_selection(folder / "none.parquet", [])
    pack(task, folder / "none.parquet", settings, folder / "pack")
    return folder / "pack"


def _answer(example: Example) -> str:
    """What a model is to say about an example."""
    if example.tokens is not None and isinstance(example.label, tuple):
        return "tags " + " ".join(f"{word}/{tag}" for word, tag in zip(example.tokens, example.label, strict=True))
    if isinstance(example.label, tuple):
        return f"labels {', '.join(example.label) or 'none'}"
    return f"label {example.label}"


def _examples(task: Task, packed: Path, stream: TextStream) -> tuple[dict[str, str], ...]:
    """Two train texts as tokens and as stage 1 will see them, masked."""
    from endtask.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(packed / "tokenizer")
    batch, positions = stream.batch(0), stream.positions(0)
    shown = []
    for row in range(min(2, len(positions))):
        example = task.train[int(positions[row])]
        start, end = batch.offsets[row : row + 2].tolist()
        masked = tokenizer.convert_ids_to_tokens(batch.input_ids[start:end].tolist())
        pair = f" | {example.text_pair}" if example.text_pair else ""
        ids = tokenizer(example.text, example.text_pair, add_special_tokens=False, verbose=False)["input_ids"]
        shown.append(
            {
                "example": f"{example.id}, {_short(_answer(example))}",
                "text": _short(example.text + pair),
                "tokens": _short(" ".join(tokenizer.convert_ids_to_tokens(ids))),
                "masked": _short(" ".join(masked)),
            }
        )
    return tuple(shown)


def _training_seconds(task: Task, few: Task, packed: Path, phase: Phase, settings: Settings) -> float:
    """Both stages: what the budget says, or a few steps of the stage that takes the most, timed."""
    from endtask.settings import Budget
    from endtask.train.finetune import finetune_phase
    from endtask.train.plan import measure_cost, split_budget, steps_for

    if settings.budget.seconds is not None:
        return settings.budget.seconds
    if settings.stage1 == "none":
        phase = finetune_phase(phase.network, few, packed, settings, phase.place, seed=settings.finetune.seeds[0])
    cost = measure_cost(phase, Budget.parse("10s"))
    assert cost.seconds is not None
    if settings.stage1 != "none":
        return steps_for(settings.budget, cost) * cost.seconds
    epochs = len(task.train) / len(few.train) if settings.finetune.max_steps is None else 1.0
    steps = _finetunings(settings) * phase.steps * epochs
    _, share = split_budget(settings)
    return cost.seconds * (steps if share is None else min(steps, steps_for(share, cost)))


def _finetunings(settings: Settings) -> int:
    return len(settings.model_seeds) * len(set(settings.finetune.learning_rates))


def _estimate(
    task: Task, queries: int, corpus: Corpus | None, phase: Phase, training: float, settings: Settings
) -> Estimate:
    from endtask.train.plan import parameters_of

    parameters = parameters_of(phase)
    retrieval = _retrieval(task, queries, corpus, settings)
    weights = 4.0 * parameters
    return Estimate(
        seconds={**retrieval.seconds, "train": training},
        memory_bytes=max(
            retrieval.memory_bytes, _MEMORY_AT_REST + _OPTIMIZER_COPIES * weights + _gradients_apart(phase)
        ),
        disk_bytes=retrieval.disk_bytes + weights * (_finetunings(settings) + 5),
        corpus_bytes=retrieval.corpus_bytes,
        parameters=parameters,
        retrieved_passages=retrieval.retrieved_passages,
        retrieved_bytes=retrieval.retrieved_bytes,
    )


def _gradients_apart(phase: Phase) -> float:
    """Bytes of the body's gradients that learned weights look at, one by one."""
    if not phase.weighting.sees_gradients(0):
        return 0.0
    body: int = sum(weight.numel() for weight in phase.network.body.parameters())
    return 4.0 * body * (len(phase.weighting.turns(0)) + _MORE_GRADIENTS)


def _with_influence(estimate: Estimate, task: Task, few: Task, settings: Settings, folder: Path) -> Estimate:
    """The same with a scoring model fitted and the retrieved passages scored, within their share of the budget."""
    from endtask.select.influence.estimate import influence_cost

    passages = max(estimate.retrieved_passages, 1.0)
    bytes_each = estimate.retrieved_bytes / passages
    cost = influence_cost(task, few, settings, folder, candidates=passages, bytes_each=bytes_each)
    share, before = settings.select.influence.share_of_budget, estimate.seconds
    seconds = cost.seconds if share is None else min(cost.seconds, share * before["train"])
    return replace(
        estimate,
        seconds={"retrieve": before["retrieve"], "select": seconds, "pack": before["pack"], "train": before["train"]},
        memory_bytes=max(estimate.memory_bytes, _MEMORY_AT_REST + cost.memory_bytes),
        disk_bytes=estimate.disk_bytes + cost.disk_bytes,
    )


def _count_queries(task: Task, settings: Settings) -> int:
    # Key phrases take long to find and make about as many queries.
    asked = settings.retrieve.model_copy(update={"query": "full"})
    return len(task_queries(task, asked, settings.task.columns).queries)


def _retrieval(task: Task, queries: int, corpus: Corpus | None, settings: Settings) -> Estimate:
    """What it takes until the text to train on is packed; the memory is set by queries and K, not by the corpus."""
    if corpus is None or settings.select.selector == "none":
        return Estimate({"retrieve": 0.0, "pack": 0.0}, 0.0, 0.0, 0.0, 0)
    size = _sample(corpus)
    workers = settings.threads or usable_cores()
    top_k = settings.retrieve.top_k
    if top_k == "auto":
        top_k = papers_top_k(len(task.train), settings.retrieve.large_scale)
    ranked = queries * min(float(top_k), size.passages)
    reading = 2 * size.seconds + size.bytes * _SCAN_SECONDS_PER_BYTE  # and once more for the texts that were asked for
    scoring = queries * size.passages * _RANK_SECONDS_PER_QUERY_AND_PASSAGE
    retrieved = size.bytes * min(1.0, ranked / size.passages)
    kept = min(retrieved, _budget_bytes(settings.select.budget, size, retrieved))
    return Estimate(
        seconds={"retrieve": (reading + scoring) / workers, "pack": kept / size.bytes * size.seconds},
        memory_bytes=workers * (_READER_BYTES + min(_MOST_RANKED_BYTES, ranked * _RANKED_BYTES / workers)),
        disk_bytes=_SCRATCH_SHARE * size.bytes + ranked * _RANKING_BYTES + 0.5 * retrieved + kept,
        corpus_bytes=size.bytes,
        parameters=0,
        retrieved_passages=min(size.passages, ranked),
        retrieved_bytes=retrieved,
    )


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
        CorpusStatistics().refuse_empty(corpus.sources)
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


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
