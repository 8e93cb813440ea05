"""Check a run before it starts: audit the data, show examples as the model sees them, and estimate the cost."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.config import BatchSize, ObjectiveSettings, Settings
from endtask.config.data_usage import DataUse, chosen_by_dev, data_usage, data_usage_lines
from endtask.config.objectives import TASK_OBJECTIVE, is_tlm
from endtask.config.training import WeightingSettings
from endtask.config.unused_settings import unused_settings
from endtask.corpus import Corpus
from endtask.io.selection_table import write_selection
from endtask.pipeline.estimate import Estimate, Trial, estimate_lines, estimate_of, retrieval_cost, with_selector
from endtask.pipeline.external_inputs import unread_corpus
from endtask.pipeline.preflight import preflight
from endtask.records import Example
from endtask.task import Audit, Task, audit
from endtask.task.leaks import leaks_between
from endtask.task.task import read_all
from endtask.tokenization.entity_markers import likely_markers

if TYPE_CHECKING:
    from endtask.objectives.stream import TextStream
    from endtask.training.phase import Phase

_SAMPLED_EXAMPLES = 2000


@dataclass(frozen=True)
class CheckResult:
    """Everything `endtask check` found."""

    audit: Audit
    examples: tuple[dict[str, str], ...]
    estimate: Estimate | None
    uses: tuple[DataUse, ...] = ()
    auxiliary: tuple[Audit, ...] = ()
    leaks_between_tasks: tuple[str, ...] = ()
    likely_markers: tuple[str, ...] = ()
    """Strings in nearly every text that look like marks and are not named as such."""
    unread_corpus: str | None = None
    without_effect: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    """What to know of the rows that judge learned weights."""

    @property
    def has_errors(self) -> bool:
        """Whether a problem would spoil the result, or a run be refused."""
        problems = (problem for found in (self.audit, *self.auxiliary) for problem in found.problems)
        return any(problem.level == "error" for problem in problems) or bool(self.estimate and self.estimate.errors)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        estimate = {**asdict(self.estimate), "total_seconds": self.estimate.total_seconds} if self.estimate else None
        return {
            "audit": self.audit.to_dict(),
            "tasks": {found.name: found.to_dict() for found in self.auxiliary},
            "leaks_between_tasks": list(self.leaks_between_tasks),
            "likely_marks": list(self.likely_markers),
            "unread_corpus": self.unread_corpus,
            "without_effect": list(self.without_effect),
            "judges": list(self.judges),
            "examples": list(self.examples),
            "uses": [asdict(use) for use in self.uses],
            "estimate": estimate,
        }

    def lines(self) -> Iterator[str]:
        """The findings for people."""
        yield from self.audit.lines()
        for found in self.auxiliary:
            yield ""
            yield from found.lines()
        yield from (f"warning: {leak}" for leak in self.leaks_between_tasks)
        if self.unread_corpus:
            yield f"warning: {self.unread_corpus}"
        yield from (f"warning: {warning}" for warning in (*self.without_effect, *self.judges))
        if self.likely_markers:
            markers = ", ".join(f'"{mark}"' for mark in self.likely_markers)
            yield f"hint: the head can read entity markers in nearly every text: tokenizer.entity_markers: [{markers}]"
        for example in self.examples:
            yield ""
            yield from (f"{name:9} {value}" for name, value in example.items())
        if self.uses:
            yield ""
            yield from data_usage_lines(self.uses)
        if self.estimate:
            yield ""
            yield from estimate_lines(self.estimate)


def check(settings: Settings) -> CheckResult:
    """Read and audit the task, find the corpus's files, tokenise and mask examples, and estimate the cost."""
    task = read_all(settings)
    corpus = Corpus.read(settings.corpus) if settings.corpus.sources else None
    preflight(task, settings)

    # Imported this late, for it takes seconds, which a slip in the data should not wait for.
    from endtask.training.pretrain_phase import pretrain_phase
    from endtask.weighting.meta.folds import groups_in

    _find_aligned(settings)
    retrieval = retrieval_cost(task, corpus, settings)
    with tempfile.TemporaryDirectory() as name:
        few = _sampled(task)
        packed = _pack_task(few, settings, Path(name))
        standing_in = _on_task_text(few, settings)
        phase = pretrain_phase(few, packed, standing_in, least_vocabulary=_vocabulary_to_come(settings))
        estimate = estimate_of(Trial(task, few, packed, phase), retrieval, settings)
        for part in settings.select.part.parts():
            estimate = with_selector(estimate, part, task, replace(few, auxiliary={}), settings, Path(name))
        examples = examples_of(few, packed, phase, standing_in)
        uses = data_usage(settings, groups=groups_in(task.train), absent=_without_selection(settings))
        auxiliary = tuple(audit(one) for one in task.auxiliary.values())
        leaks, markers = tuple(leaks_between(task)), _markers_not_named(few, settings)
        found = CheckResult(audit(task), examples, estimate, uses, auxiliary, leaks, markers)
        judges = (*chosen_by_dev(uses), *_weighting_warnings(task, settings))
        idle = unused_settings(settings)
        return replace(found, unread_corpus=unread_corpus(settings), without_effect=idle, judges=judges)


def _without_selection(settings: Settings) -> list[str]:
    """The objectives that would read a selection where there is none."""
    found = settings.used_objectives
    return [] if settings.has_selection else [name for name, one in found.items() if one.reads == "selection"]


def _markers_not_named(task: Task, settings: Settings) -> tuple[str, ...]:
    markers = () if task.kind == "tags" else likely_markers([example.text for example in task.train])
    return tuple(mark for mark in markers if mark not in settings.tokenizer.entity_markers)


def _find_aligned(settings: Settings) -> None:
    """The files of aligned objectives must be there; a run meets them in its fingerprints."""
    if settings.reads_aligned:
        from endtask.tokenization.span_finders import span_finder

        Corpus.aligned(settings.aligned, settings.corpus)
        span_finder(settings.aligned)


def _sampled(task: Task) -> Task:
    """The task with train texts from all over the split, no more than tell their lengths and words."""
    step = max(1, len(task.train) // _SAMPLED_EXAMPLES)
    auxiliary = {name: _sampled(one) for name, one in task.auxiliary.items()}
    return replace(task, splits={"train": task.train[::step]}, auxiliary=auxiliary)


def _pack_task(task: Task, settings: Settings, folder: Path) -> Path:
    from endtask.tokenization.packing import pack

    write_selection(folder / "none.parquet", [])
    pack(task, folder / "none.parquet", settings, folder / "pack")
    return folder / "pack"


def _vocabulary_to_come(settings: Settings) -> int:
    """How many tokens a run will learn at most where it has a corpus; without, those of its texts are counted."""
    return settings.tokenizer.vocab_size if settings.learns_tokenizer and settings.corpus.sources else 0


def _on_task_text(few: Task, settings: Settings) -> Settings:
    """The settings for pre-training that has nothing but the task's train texts: other text is not drawn yet.

    Learned weights are tried by folds, for dev is not packed, and left out where train cannot be cut.
    """
    train, used = settings.pretrain, settings.used_objectives
    if is_tlm(train.objectives) and train.weighting.part.tlm_only:
        joint = ObjectiveSettings(kind="joint", **train.objectives[TASK_OBJECTIVE].options.model_dump())
        changes: dict[str, Any] = {"objectives": {TASK_OBJECTIVE: joint}, "weighting": WeightingSettings(name="equal")}
        return settings.model_copy(update={"pretrain": train.model_copy(update=changes)})
    objectives = {name: _standing_in(section, train.batch_size) for name, section in used.items()}
    changes = {"objectives": objectives, "weighting": train.weighting.part.on_sample(few, train.weighting)}
    return settings.model_copy(update={"pretrain": train.model_copy(update=changes)})


def _standing_in(asked: ObjectiveSettings, batch_size: BatchSize) -> ObjectiveSettings:
    """An objective of about the same cost on the task's texts."""
    if asked.reads == "task":
        return asked
    return ObjectiveSettings(
        kind="mlm",
        texts="task",
        batch_size=asked.batch_size or batch_size,
        weight=asked.weight,
        dropout=asked.dropout,
        mask_probability=asked.mask_probability,
        learning_rate=asked.learning_rate,
        warmup_fraction=asked.warmup_fraction,
    )


def _weighting_warnings(task: Task, settings: Settings) -> Iterator[str]:
    """Yield what the weighting warns of."""
    if not settings.skip_pretraining:
        yield from settings.pretrain.weighting.part.warnings(task, settings)


def examples_of(task: Task, packed: Path, phase: Phase, settings: Settings) -> tuple[dict[str, str], ...]:
    """Two train texts as tokens and as pre-training will see them, masked."""
    from endtask.tokenization.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(packed / "tokenizer")
    name = _shown_objective(phase, settings)
    stream: TextStream = phase.objectives[name].stream  # type: ignore[attr-defined]
    of = settings.used_objectives[name].task
    rows = task.train if of is None else task.auxiliary[of].train
    batch, positions = stream.batch(0), stream.positions(0)
    shown = []
    for row in range(min(2, len(positions))):
        example = rows[int(positions[row])]
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


def _shown_objective(phase: Phase, settings: Settings) -> str:
    """The first objective that hides tokens, or the first of all; those of the end task go before others."""
    used = settings.used_objectives
    names = sorted(phase.objectives, key=lambda name: used[name].task is not None)
    return next((name for name in names if used[name].part_class.masks), names[0])


def _answer(example: Example) -> str:
    """What a model is to say about an example."""
    if example.tokens is not None and isinstance(example.label, tuple):
        return "tags " + " ".join(f"{word}/{tag}" for word, tag in zip(example.tokens, example.label, strict=True))
    if isinstance(example.label, tuple):
        return f"labels {', '.join(example.label) or 'none'}"
    return f"label {example.label}"


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
