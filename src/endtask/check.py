"""Look before spending: problems of the data, examples as the model will see them, and what the run would cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.corpus import Corpus
from endtask.corpus.sources import Source
from endtask.files.selection_table import write_selection
from endtask.report.format import duration
from endtask.retrieve.queries import build_queries, papers_top_k
from endtask.retrieve.words import words_of
from endtask.settings import Settings
from endtask.task import Audit, Task, audit

if TYPE_CHECKING:
    from endtask.train.loop import Phase

_SAMPLED_DOCUMENTS = 5000
_SAMPLED_EXAMPLES = 2000

# Rough figures of the bm25s engine on two aarch64 cores (ChemProt against 72 million words); only the estimate
# uses them, and `seconds` in the manifest of `retrieve` says what it really took.
_INDEX_SECONDS_PER_WORD = 9e-7
_RANK_SECONDS_PER_QUERY_AND_PASSAGE = 5e-8
_MEMORY_PER_WORD = 40.0
_MEMORY_AT_REST = 0.6e9
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments


@dataclass(frozen=True)
class CorpusSize:
    """How much text there is, and the seconds it takes to read it and cut it into words."""

    bytes: float = 0.0
    seconds: float = 0.0
    words: float = 0.0
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        estimate = {**asdict(self.estimate), "total_seconds": self.estimate.total_seconds} if self.estimate else None
        return {"audit": self.audit.to_dict(), "examples": list(self.examples), "estimate": estimate}

    def lines(self) -> Iterator[str]:
        """The findings for people."""
        yield from self.audit.lines()
        for example in self.examples:
            yield ""
            yield from (f"{name:9} {value}" for name, value in example.items())
        if self.estimate:
            yield ""
            yield from estimate_lines(self.estimate)


def check(settings: Settings) -> CheckResult:
    """Read and audit the task, find the corpus's files, tokenise and mask examples, and estimate the cost."""
    from endtask.train.pretrain import pretrain_phase

    task = Task.read(settings.task, seed=settings.seed)
    corpus = Corpus.read(settings.corpus) if settings.corpus.sources else None
    if task.kind not in ("text", "pair"):
        return CheckResult(audit(task), (), None)
    with tempfile.TemporaryDirectory() as name:
        few = _sampled(task)
        packed = _pack_task(few, settings, Path(name))
        phase = pretrain_phase(few, packed, settings)
        estimate = _estimate(task, corpus, phase, settings)
        return CheckResult(audit(task), _examples(few, packed, phase), estimate)


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


def _pack_task(task: Task, settings: Settings, folder: Path) -> Path:
    from endtask.text.pack import pack

    write_selection(folder / "none.parquet", [])
    pack(task, folder / "none.parquet", settings, folder / "pack")
    return folder / "pack"


def _examples(task: Task, packed: Path, phase: Phase) -> tuple[dict[str, str], ...]:
    """Two train texts as tokens and as stage 1 will see them, masked."""
    from endtask.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(packed / "tokenizer")
    internal = phase.objectives["internal"]
    batch = internal.batch(0)
    positions = internal.plan.positions(0)  # type: ignore[attr-defined]
    shown = []
    for row in range(min(2, len(positions))):
        example = task.train[int(positions[row])]
        length = int(batch.attention_mask[row].sum())
        masked = tokenizer.convert_ids_to_tokens(batch.input_ids[row, :length].tolist())
        pair = f" | {example.text_pair}" if example.text_pair else ""
        ids = tokenizer(example.text, example.text_pair, add_special_tokens=False, verbose=False)["input_ids"]
        shown.append(
            {
                "example": f"{example.id}, label {example.label}",
                "text": _short(example.text + pair),
                "tokens": _short(" ".join(tokenizer.convert_ids_to_tokens(ids))),
                "masked": _short(" ".join(masked)),
            }
        )
    return tuple(shown)


def _estimate(task: Task, corpus: Corpus | None, phase: Phase, settings: Settings) -> Estimate:
    from endtask.settings import Budget
    from endtask.train.plan import measure_cost, parameters_of, steps_for

    parameters = parameters_of(phase)
    training = settings.budget.seconds
    if training is None:
        cost = measure_cost(phase, Budget.parse("10s"))
        assert cost.seconds is not None
        training = steps_for(settings.budget, cost) * cost.seconds
    size = _sample(corpus) if corpus else CorpusSize()
    queries = len(build_queries(task.train))
    ranking = size.words * _INDEX_SECONDS_PER_WORD + queries * size.passages * _RANK_SECONDS_PER_QUERY_AND_PASSAGE
    top_k = settings.retrieve.top_k if settings.retrieve.top_k != "auto" else papers_top_k(len(task.train))
    retrieved = size.bytes * min(1.0, queries * top_k / size.passages) if size.passages else 0.0
    kept = settings.select.budget
    share = kept.amount if kept and kept.unit == "share" else 1.0
    return Estimate(
        seconds={"retrieve": 2 * size.seconds + ranking, "pack": share * size.seconds, "train": training},
        memory_bytes=_MEMORY_AT_REST + max(size.words * _MEMORY_PER_WORD, 4.0 * _OPTIMIZER_COPIES * parameters),
        disk_bytes=0.5 * retrieved + share * size.bytes + 4.0 * parameters * (len(settings.finetune.seeds) + 5),
        corpus_bytes=size.bytes,
        parameters=parameters,
    )


def _sample(corpus: Corpus) -> CorpusSize:
    """The size of a corpus, from the start of each source."""
    return sum((_sample_source(corpus, source) for source in corpus.sources), CorpusSize())


def _sample_source(corpus: Corpus, source: Source) -> CorpusSize:
    part = Corpus([source], passage_characters=corpus.passage_characters, deduplicate=False)
    texts: list[str] = []
    read = 0
    ticks: list[tuple[int, int]] = []  # whenever the reader fetches more: (passages seen, bytes it had fetched before)

    def fetched(amount: int) -> None:
        nonlocal read
        ticks.append((len(texts), read))
        read += amount

    started = time.perf_counter()
    for document in islice(part.documents(progress=fetched), _SAMPLED_DOCUMENTS):
        texts.append(document.text)  # noqa: PERF401 - `fetched` counts them as they come
    words = sum(len(words_of(text)) for text in texts)
    size = CorpusSize(
        bytes=sum(len(text.encode()) for text in texts),
        seconds=time.perf_counter() - started,
        words=words,
        passages=len(texts),
    )
    passages, consumed = ticks[-1] if ticks else (0, 0)
    if len(texts) < _SAMPLED_DOCUMENTS or not passages or not consumed:
        return size
    # What had been fetched before the last fetch is what the passages until then were made of.
    return size.scaled(max(1.0, passages / len(texts) * part.files_bytes() / consumed))


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
