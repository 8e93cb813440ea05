"""The whole look: the data is read and audited, a sample of it is packed and masked, and the cost is estimated."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import BatchSize, ObjectiveSettings, Settings
from endtask.config.data_usage import DataUse, chosen_by_dev, data_usage, data_usage_lines
from endtask.config.unused_settings import unused_settings
from endtask.corpus import Corpus
from endtask.io.selection_table import write_selection
from endtask.pipeline.check.estimate import Estimate, Trial, estimate_lines, estimate_of, with_selector
from endtask.pipeline.check.retrieval import retrieval_cost
from endtask.pipeline.check.sample_texts import examples_of
from endtask.pipeline.external_inputs import unread_corpus
from endtask.pipeline.preflight import preflight
from endtask.task import Audit, Task, audit
from endtask.task.leaks import leaks_between
from endtask.task.task import read_all
from endtask.tokenization.entity_markers import likely_markers

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
            yield f"hint: marks in nearly every text can be tokens that the head reads: tokenizer.entity_markers: [{markers}]"
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
    from endtask.training.pretrain import pretrain_phase
    from endtask.weighting.meta.build import few_validation_rows
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
        judges = tuple(filter(None, (*chosen_by_dev(uses), few_validation_rows(task, settings))))
        idle = unused_settings(settings)
        return replace(found, unread_corpus=unread_corpus(settings), without_effect=idle, judges=judges)


def _without_selection(settings: Settings) -> list[str]:
    """The objectives that would read a selection where there is none."""
    found = settings.used_objectives
    return [] if settings.has_selection else [name for name, one in found.items() if one.reads == "selection"]


def _markers_not_named(task: Task, settings: Settings) -> tuple[str, ...]:
    markers = () if task.task_type.per_token else likely_markers([example.text for example in task.train])
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
    from endtask.weighting.meta.folds import groups_in

    train, used = settings.pretrain, settings.used_objectives
    is_tlm = not train.objectives and all(one.task is None for one in used.values())
    objectives = {} if is_tlm else {name: _standing_in(one, train.batch_size) for name, one in used.items()}
    meta = train.meta.model_copy(update={"split": "folds"})
    weighting = "equal" if train.weighting == "meta" and groups_in(few.train) < 2 else train.weighting
    changes = {"rho1": 0, "order": "shuffled", "objectives": objectives, "meta": meta, "weighting": weighting}
    return settings.model_copy(update={"pretrain": train.model_copy(update=changes)})


def _standing_in(asked: ObjectiveSettings, batch_size: BatchSize) -> ObjectiveSettings:
    """An objective of about the same cost on the task's texts."""
    if asked.reads == "task":
        return asked
    changes = {"kind": "mlm", "texts": "task", "batch_size": asked.batch_size or batch_size}
    return asked.model_copy(update=changes)
