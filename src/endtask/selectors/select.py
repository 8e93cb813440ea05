"""The select stage: which passages are trained on, under an exact budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from endtask.config import Settings
from endtask.io.atomic import remove_folder
from endtask.io.run_layout import INFLUENCE_WORK, SELECTION
from endtask.progress import warn
from endtask.selectors.base import RunContext, Selector
from endtask.selectors.fill_budget import in_bytes
from endtask.task import Task

LARGE_SHARE = 0.3
_PROPOSED = "--set select.budget=5%"


def select(run: RunContext) -> dict[str, Any]:
    """Write the selection to `run.folder` and return counts for the manifest."""
    folder = run.folder
    assert folder is not None
    if run.corpus_bytes:
        run = replace(run, settings=in_bytes(run.settings, run.table))
    selector: Selector = run.settings.part
    path = folder / SELECTION
    selected = selector.select(run, path)
    share = selected.bytes / run.corpus_bytes if run.corpus_bytes else 0.0
    counts = {"passages": selected.passages, "bytes": selected.bytes, "share_of_corpus": share, **selected.counts}
    if run.examples and selected.passages:
        from endtask.selectors.quality import quality  # compiled kernels, which the command line need not wait for

        counts["quality"] = quality(run, path)
    if share > LARGE_SHARE:
        warning = f"{share:.0%} of the corpus is selected; so large a part is much the same for any task"
        counts["warning"] = f"{warning}; a budget selects the best of it: {_PROPOSED}"
        warn(counts["warning"])
    remove_folder(folder / INFLUENCE_WORK)  # at the very end: a killed run resumes from it
    return counts


def check_selector(task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
    """Raise `InputError` where the selector cannot work with this task and corpus, before anything is spent."""
    settings.select.part.preflight(task, settings, has_corpus=has_corpus, labels=labels)
