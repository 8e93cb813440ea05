"""Select the passages of pre-training, and draw the domain's text."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from endtask.config import Settings
from endtask.io.atomic import remove_folder
from endtask.io.run_layout import INFLUENCE_FOLDER, SELECTION
from endtask.io.stage_files import read_manifest
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage
from endtask.progress import warn

if TYPE_CHECKING:
    from endtask.selectors.base import RunContext, Selector

LARGE_SHARE = 0.3
_DOMAIN_SETTINGS = ("domain", "retrieve.contamination_filter")


class Select(Stage):
    """Writes the selection, and the domain's text if pre-training reads it."""

    name = "select"
    reads_files_of = "retrieve"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the section of the selector, and the other settings that the selector reads."""
        selector_keys = (key for part in settings.select.part.parts() for key in part.settings_read(settings))
        domain_keys = _DOMAIN_SETTINGS if settings.reads_domain else ()
        return tuple(dict.fromkeys(("select", "seed", *selector_keys, *domain_keys)))

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the inputs that the selector reads in addition to the corpus."""
        selector_inputs = (name for part in settings.select.part.parts() for name in part.inputs_read())
        return tuple(dict.fromkeys(("selection", *selector_inputs)))

    def inputs_opened(self, settings: Settings) -> tuple[str, ...]:
        """Return the corpus and the selector's file, if the selector or the domain reads them."""
        parts = settings.select.part.parts()
        opens_corpus = settings.reads_domain or any(part.opens_corpus for part in parts)
        opens_file = any(part.external_path() for part in parts)
        return (*(("corpus",) if opens_corpus else ()), *(("selection",) if opens_file else ()))

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Write the selection, and the domain's text if pre-training reads it."""
        with _memory_hint(data.settings):
            counts = _select(data, stage, finished)
        return {**counts, **_domain(data, stage)}


def _select(data: RunData, stage: StageFolder, finished: Finished) -> Counts:
    from endtask.selectors.base import RunContext

    manifest = read_manifest(finished["retrieve"])
    assert manifest is not None
    settings = data.settings
    run = RunContext(
        settings.select,
        finished["retrieve"],
        corpus=data.corpus,
        corpus_bytes=manifest["counts"]["corpus"]["bytes"],
        seed=settings.seed,
        is_contaminated=data.contamination_check() if settings.select.part.filters_contamination else None,
        examples=data.task.train,
        folder=stage.start(),
        device=settings.device,
        task=replace(data.task, auxiliary={}),
        run=settings,
        stage=stage,
    )
    return select(run)


def select(run: RunContext) -> Counts:
    """Write the selection to `run.folder` and return counts for the manifest."""
    from endtask.retrieval.compiled import has_numba
    from endtask.selectors.base import budget_in_bytes
    from endtask.selectors.quality import quality

    folder = run.folder
    assert folder is not None
    if run.corpus_bytes:
        run = replace(run, settings=budget_in_bytes(run.settings, run.table))
    selector: Selector = run.settings.part
    path = folder / SELECTION
    selected = selector.select(run, path)
    share = selected.bytes / run.corpus_bytes if run.corpus_bytes else 0.0
    counts = {"passages": selected.passages, "bytes": selected.bytes, "share_of_corpus": share, **selected.counts}
    if run.examples and selected.passages and has_numba():
        counts["quality"] = quality(run, path)
    budget = run.settings.budget
    if share > LARGE_SHARE and (budget is None or selected.bytes > budget.at_least):
        warning = f"{share:.0%} of the corpus is selected; so large a part is much the same for any task"
        counts["warning"] = f"{warning}; a budget selects the best of it: --set select.budget=5%"
        warn(counts["warning"])
    remove_folder(folder / INFLUENCE_FOLDER)  # last, because a killed run resumes from it
    return counts


def _memory_hint(settings: Settings) -> AbstractContextManager[None]:
    """Return a context that adds a hint to out-of-memory errors of a selector that runs a model."""
    hints = [part.memory_hint for part in settings.select.part.parts() if part.memory_hint is not None]
    if not hints:
        return nullcontext()
    from endtask.training.device import explain_out_of_memory

    return explain_out_of_memory(hints[0])


def _domain(data: RunData, stage: StageFolder) -> Counts:
    """Draw the domain's text if pre-training reads it. Return its counts."""
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
        is_contaminated=data.contamination_check(),
    )
    return {"domain": drawn}
