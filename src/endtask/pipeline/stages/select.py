"""Select the passages that are trained on, and draw the domain's text."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from endtask.config import Settings
from endtask.io.stage_folder import StageFolder, read_manifest
from endtask.pipeline.contamination import contamination_check
from endtask.pipeline.stage import Counts, Finished, RunData, Stage

_DOMAIN = ("domain", "retrieve.contamination_filter")


class Select(Stage):
    """The selection, and the domain where pre-training reads it."""

    name = "select"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the section of the selector, and what its parts read beside it."""
        of_parts = (key for part in settings.select.part.parts() for key in part.settings_read(settings))
        return tuple(dict.fromkeys(("select", "seed", *of_parts, *(_DOMAIN if settings.reads_domain else ()))))

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return what the selector reads beside the corpus."""
        of_parts = (name for part in settings.select.part.parts() for name in part.inputs_read())
        return tuple(dict.fromkeys(("selection", *of_parts)))

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Write the selection, and the domain's text where pre-training reads it."""
        with _memory_hint(data.settings):
            counts = _select(data, stage, finished)
        return {**counts, **_domain(data, stage)}


def _select(data: RunData, stage: StageFolder, finished: Finished) -> Counts:
    """Write the selection."""
    from endtask.selectors.base import RunContext
    from endtask.selectors.select import select

    manifest = read_manifest(finished["retrieve"])
    assert manifest is not None
    settings = data.settings
    run = RunContext(
        settings.select,
        finished["retrieve"],
        corpus=data.corpus,
        corpus_bytes=manifest["counts"]["corpus"]["bytes"],
        labels=data.task.labels,
        seed=settings.seed,
        is_contaminated=contamination_check(data) if settings.select.part.filters_contamination else None,
        examples=data.task.train,
        folder=stage.start(),
        device=settings.device,
        task=replace(data.task, auxiliary={}),
        run=settings,
        stage=stage,
    )
    return select(run)


def _memory_hint(settings: Settings) -> AbstractContextManager[None]:
    """Explain how to need less memory where a selector runs a model."""
    hints = [part.memory_hint for part in settings.select.part.parts() if part.memory_hint is not None]
    if not hints:
        return nullcontext()
    from endtask.training.out_of_memory import explained_memory_trouble

    return explained_memory_trouble(hints[0])


def _domain(data: RunData, stage: StageFolder) -> Counts:
    """Draw the domain's text, where pre-training reads it."""
    if not data.settings.reads_domain:
        return {}
    from endtask.selectors.domain import select_domain

    assert data.corpus is not None
    drawn = select_domain(
        data.settings.domain,
        stage.partial,
        corpus=data.corpus,
        train_rows=len(data.task.train),
        seed=data.settings.seed,
        is_contaminated=contamination_check(data),
    )
    return {"domain": drawn}
