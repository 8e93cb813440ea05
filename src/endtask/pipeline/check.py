"""Check a run before it starts: audit the data, show examples as the model sees them, and estimate the cost."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.config import BatchSize, ObjectiveSettings, Settings
from endtask.config.data_usage import DataUse, chosen_by_dev, data_usage, data_usage_lines
from endtask.config.objectives import TASK_OBJECTIVE
from endtask.config.training import WeightingSettings
from endtask.corpus import Corpus
from endtask.io.selection_table import write_selection
from endtask.pipeline.estimate import (
    Estimate,
    TrainingSample,
    estimate_lines,
    estimate_of,
    retrieval_cost,
    with_selector,
)
from endtask.pipeline.inputs import unread_corpus
from endtask.pipeline.preflight import preflight
from endtask.records import Example
from endtask.task import Audit, Task, audit
from endtask.task.leaks import leaks_between
from endtask.task.task import read_all
from endtask.tokenization.packing import with_detected_markers
from endtask.tokenization.special_tokens import likely_markers

if TYPE_CHECKING:
    from endtask.objectives.stream import TextStream
    from endtask.training.phase import Phase

_SAMPLED_EXAMPLES = 2000


@dataclass(frozen=True)
class CheckResult:
    """The findings of `endtask check`."""

    audit: Audit
    examples: tuple[dict[str, str], ...]
    estimate: Estimate | None
    data_usage: tuple[DataUse, ...] = ()
    auxiliary: tuple[Audit, ...] = ()
    leaks_between_tasks: tuple[str, ...] = ()
    likely_markers: tuple[str, ...] = ()
    """Strings in nearly every text that look like entity markers and are not in the settings."""
    unread_corpus: str | None = None
    unread_files: tuple[str, ...] = ()
    """Sentences about files of the corpus that are of no known format."""
    unused_settings: tuple[str, ...] = ()
    validation_warnings: tuple[str, ...] = ()
    """Warnings about the rows that validate learned weights."""

    @property
    def has_errors(self) -> bool:
        """Whether a problem would spoil the result or stop the run."""
        problems = (problem for task_audit in (self.audit, *self.auxiliary) for problem in task_audit.problems)
        return any(problem.level == "error" for problem in problems) or bool(self.estimate and self.estimate.errors)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        estimate = {**asdict(self.estimate), "total_seconds": self.estimate.total_seconds} if self.estimate else None
        return {
            "audit": self.audit.to_dict(),
            "tasks": {task_audit.name: task_audit.to_dict() for task_audit in self.auxiliary},
            "leaks_between_tasks": list(self.leaks_between_tasks),
            "likely_markers": list(self.likely_markers),
            "unread_corpus": self.unread_corpus,
            "unread_files": list(self.unread_files),
            "unused_settings": list(self.unused_settings),
            "validation_warnings": list(self.validation_warnings),
            "examples": list(self.examples),
            "data_usage": [asdict(use) for use in self.data_usage],
            "estimate": estimate,
        }

    def lines(self) -> Iterator[str]:
        """Yield the findings as lines of text."""
        yield from self.audit.lines()
        for task_audit in self.auxiliary:
            yield ""
            yield from task_audit.lines()
        yield from (f"warning: {leak}" for leak in self.leaks_between_tasks)
        if self.unread_corpus:
            yield f"warning: {self.unread_corpus}"
        yield from (f"note: {line}" for line in self.unread_files)
        yield from (f"warning: {warning}" for warning in (*self.unused_settings, *self.validation_warnings))
        if self.likely_markers:
            markers = ", ".join(f'"{marker}"' for marker in self.likely_markers)
            yield f"hint: the head can read entity markers in nearly every text: tokenizer.entity_markers: [{markers}]"
        for example in self.examples:
            yield ""
            yield from (f"{name:9} {value}" for name, value in example.items())
        if self.data_usage:
            yield ""
            yield from data_usage_lines(self.data_usage)
        if self.estimate:
            yield ""
            yield from estimate_lines(self.estimate)


def check(settings: Settings, *, text_bytes: float | None = None) -> CheckResult:
    """Audit the task, find the files of the corpus, tokenize and mask examples, and estimate the cost.

    The estimate is for the corpus, or for one of the same kind with `text_bytes`.
    """
    task = read_all(settings)
    settings = with_detected_markers(settings, task)
    corpus = Corpus.read(settings.corpus) if settings.corpus.sources else None
    preflight(task, settings)

    # Imported after the checks: it takes seconds, and errors in the data should appear at once.
    from endtask.training.pretrain_phase import pretrain_phase
    from endtask.weighting.folds import groups_in

    _check_aligned_files(settings)
    retrieval = retrieval_cost(task, corpus, settings, text_bytes=text_bytes)
    with tempfile.TemporaryDirectory() as name:
        sample = _sample(task)
        packed = _pack_task(sample, settings, Path(name))
        sample_settings = _on_task_text(sample, settings)
        phase = pretrain_phase(sample, packed, sample_settings, least_vocabulary=_largest_vocabulary(settings))
        estimate = estimate_of(TrainingSample(task, sample, packed, phase), retrieval, settings)
        for part in settings.select.part.parts():
            estimate = with_selector(estimate, part, task, replace(sample, auxiliary={}), settings, Path(name))
        uses = data_usage(settings, groups=groups_in(task.train), absent=_objectives_without_selection(settings))
        return CheckResult(
            audit(task),
            examples_of(sample, packed, phase, sample_settings),
            estimate,
            data_usage=uses,
            auxiliary=tuple(audit(auxiliary_task) for auxiliary_task in task.auxiliary.values()),
            leaks_between_tasks=tuple(leaks_between(task)),
            likely_markers=_unnamed_markers(sample, settings),
            unread_corpus=unread_corpus(settings),
            unread_files=tuple(corpus.unread_lines()) if corpus else (),
            unused_settings=tuple(settings.unused_settings()),
            validation_warnings=(*chosen_by_dev(uses), *_weighting_warnings(task, settings)),
        )


def _objectives_without_selection(settings: Settings) -> list[str]:
    """Return the objectives that would read a selection if the run has none."""
    if settings.has_selection:
        return []
    return [name for name, objective in settings.used_objectives.items() if objective.reads == "selection"]


def _unnamed_markers(task: Task, settings: Settings) -> tuple[str, ...]:
    markers = () if task.task_type.per_token else likely_markers([example.text for example in task.train])
    return tuple(marker for marker in markers if marker not in settings.tokenizer.markers)


def _check_aligned_files(settings: Settings) -> None:
    """Raise `InputError` for missing files of aligned objectives, which a run reads for its fingerprints."""
    if settings.reads_aligned:
        Corpus.aligned(settings.aligned, settings.corpus)


def _sample(task: Task) -> Task:
    """Return the task with every n-th train row, enough to estimate lengths and words."""
    step = max(1, len(task.train) // _SAMPLED_EXAMPLES)
    auxiliary = {name: _sample(other) for name, other in task.auxiliary.items()}
    return replace(task, splits={"train": task.train[::step]}, auxiliary=auxiliary)


def _pack_task(task: Task, settings: Settings, folder: Path) -> Path:
    from endtask.tokenization.packing import pack

    write_selection(folder / "none.parquet", [])
    pack(task, folder / "none.parquet", settings, folder / "pack")
    return folder / "pack"


def _largest_vocabulary(settings: Settings) -> int:
    """Return the largest vocabulary that a run can learn from its corpus; 0 if it learns none from a corpus."""
    return settings.tokenizer.vocab_size if settings.learns_tokenizer and settings.corpus.sources else 0


def _on_task_text(sample: Task, settings: Settings) -> Settings:
    """Return settings for pre-training on the task's train texts only, because other text is not selected yet.

    Learned weights use folds, because dev is not packed, and are left out if train cannot be cut into folds.
    """
    train, used = settings.pretrain, settings.used_objectives
    if train.skips_objectives_without_text and train.weighting.part.tlm_only:
        joint = ObjectiveSettings(kind="joint", **train.objectives[TASK_OBJECTIVE].options.model_dump())
        changes: dict[str, Any] = {"objectives": {TASK_OBJECTIVE: joint}, "weighting": WeightingSettings(name="equal")}
        return settings.model_copy(update={"pretrain": train.model_copy(update=changes)})
    objectives = {name: _similar_objective(section, train.batch_size) for name, section in used.items()}
    changes = {"objectives": objectives, "weighting": train.weighting.part.on_sample(sample, train.weighting)}
    return settings.model_copy(update={"pretrain": train.model_copy(update=changes)})


def _similar_objective(section: ObjectiveSettings, batch_size: BatchSize) -> ObjectiveSettings:
    """Return an objective on the task's texts with about the same cost."""
    if section.reads == "task":
        return section
    return ObjectiveSettings(
        kind="mlm",
        texts="task",
        batch_size=section.batch_size or batch_size,
        weight=section.weight,
        dropout=section.dropout,
        learning_rate=section.learning_rate,
        warmup_steps=section.warmup_steps,
    )


def _weighting_warnings(task: Task, settings: Settings) -> Iterator[str]:
    if not settings.skip_pretraining:
        yield from settings.pretrain.weighting.part.warnings(task, settings)


def examples_of(task: Task, packed: Path, phase: Phase, settings: Settings) -> tuple[dict[str, str], ...]:
    """Return two train texts with their tokens, and with tokens masked as in pre-training."""
    from endtask.tokenization.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(packed / "tokenizer")
    name = _shown_objective(phase, settings)
    stream: TextStream = phase.objectives[name].stream  # type: ignore[attr-defined]
    auxiliary = settings.used_objectives[name].task
    rows = task.train if auxiliary is None else task.auxiliary[auxiliary].train
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
                "example": f"{example.id}, {_short(_label_text(example))}",
                "text": _short(example.text + pair),
                "tokens": _short(" ".join(tokenizer.convert_ids_to_tokens(ids))),
                "masked": _short(" ".join(masked)),
            }
        )
    return tuple(shown)


def _shown_objective(phase: Phase, settings: Settings) -> str:
    """Return the first objective that masks tokens, or the first objective; those of the end task come first."""
    used = settings.used_objectives
    names = sorted(phase.objectives, key=lambda name: used[name].task is not None)
    return next((name for name in names if used[name].part_class.masks), names[0])


def _label_text(example: Example) -> str:
    if example.tokens is not None and isinstance(example.label, tuple):
        return "tags " + " ".join(f"{word}/{tag}" for word, tag in zip(example.tokens, example.label, strict=True))
    if isinstance(example.label, tuple):
        return f"labels {', '.join(example.label) or 'none'}"
    return f"label {example.label}"


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
