"""The select stage: which passages are trained on, under an exact budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from endtask.config import SelectSettings, Settings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.atomic import remove_folder
from endtask.io.run_layout import INFLUENCE_WORK, RETRIEVED, SELECTION
from endtask.io.selection_table import write_selection
from endtask.io.stage_folder import StageFolder
from endtask.progress import warn
from endtask.records import Example
from endtask.selectors.best_rank import select_best_rank
from endtask.selectors.embedding import check_embedding_exists
from endtask.selectors.fill_budget import in_bytes
from endtask.selectors.imported import select_imported
from endtask.selectors.imported_rows import check_readable
from endtask.selectors.inputs import Inputs, Kept, Selector
from endtask.selectors.random import select_random
from endtask.selectors.rankers import RANKERS, select_ranked
from endtask.task import Task

LARGE_SHARE = 0.3
_PROPOSED = "--set select.budget=5%"


def _select_none(inputs: Inputs, path: Path) -> Kept:
    return Kept(write_selection(path, []), 0, {})


SELECTORS: dict[str, Selector] = {
    **dict.fromkeys(RANKERS, select_ranked),
    "best_rank": select_best_rank,
    "random": select_random,
    "imported": select_imported,
    "none": _select_none,
}
"""One file each, chosen by `select.selector`."""

NEED_A_CORPUS = frozenset({"random", *RANKERS} - {"best_rank"})
"""Without a corpus, `best_rank` keeps nothing, which is how a run goes without."""


def select(
    retrieved: Path,
    settings: SelectSettings,
    folder: Path,
    *,
    corpus: Corpus | None = None,
    corpus_bytes: int,
    labels: tuple[str, ...] = (),
    seed: int = 0,
    is_contaminated: Callable[[str], bool] | None = None,
    examples: Sequence[Example] = (),
    device: str = "auto",
    task: Task | None = None,
    run: Settings | None = None,
    stage: StageFolder | None = None,
) -> dict[str, Any]:
    """Write the selection; returns counts for the manifest. `Inputs` says what the arguments mean."""
    check_selector(settings, has_corpus=bool(corpus_bytes), labels=labels)
    if corpus_bytes:
        settings = in_bytes(settings, retrieved / RETRIEVED)
    inputs = Inputs(
        settings,
        retrieved,
        corpus,
        corpus_bytes,
        labels,
        seed,
        is_contaminated,
        examples,
        folder,
        device,
        task,
        run,
        stage,
    )
    kept = SELECTORS[settings.selector](inputs, folder / SELECTION)
    share = kept.bytes / corpus_bytes if corpus_bytes else 0.0
    counts = {"passages": kept.passages, "bytes": kept.bytes, "share_of_corpus": share, **kept.counts}
    if examples and kept.passages:
        from endtask.selectors.quality import quality  # compiled kernels, which the command line need not wait for

        counts["quality"] = quality(inputs, folder / SELECTION)
    if share > LARGE_SHARE:
        part = f"{share:.0%} of the corpus is kept; so large a part is much the same for any task"
        counts["warning"] = f"{part}; a budget keeps the best of it: {_PROPOSED}"
        warn(counts["warning"])
    remove_folder(folder / INFLUENCE_WORK)  # at the very end: a run killed before goes on from it
    return counts


def check_selector(settings: SelectSettings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
    """Refuse settings that cannot work with this task and corpus, before any work is done."""
    if settings.selector in NEED_A_CORPUS and not has_corpus:
        message = f"{settings.selector} draws from a corpus"
        raise InputError(message, key="corpus.sources", hint="--corpus path/to/text")
    if settings.selector == "imported":
        _check_import(settings, has_corpus)
    if settings.per_class and settings.selector not in ("best_rank", "influence", "none"):
        hint = "set it to false, or the selector to best_rank or influence"
        raise InputError(f"{settings.selector} does not ask by class", key="select.per_class", hint=hint)
    if settings.per_class and settings.selector == "influence" and settings.influence.choice != "budget":
        hint = f"set it to false, or select.influence.choice from {settings.influence.choice} to budget"
        raise InputError("only a choice by scores is dealt to the classes", key="select.per_class", hint=hint)
    if settings.per_class and not labels:
        message = "the task has no classes to deal the budget to"
        raise InputError(message, key="select.per_class", hint="set it to false")
    if settings.selector == "imported" and settings.path is not None:
        check_readable(Path(settings.path))
    if settings.uses_embedding:
        check_embedding_exists(settings.embedding)


def _check_import(settings: SelectSettings, has_corpus: bool) -> None:
    if settings.path is None:
        hint = "--set select.path=my-selection.csv"
        raise InputError("no file to import the selection from", key="select.path", hint=hint)
    if not Path(settings.path).is_file():
        message = "is a folder, not a file" if Path(settings.path).is_dir() else "no such file"
        raise InputError(message, path=settings.path, key="select.path")
    if settings.budget is not None and settings.budget.unit == "retrieved":
        hint = "null keeps the whole file; 300MB or 50000passages keep the best of it"
        raise InputError("for an imported selection nothing is retrieved", key="select.budget", hint=hint)
    if settings.budget is not None and settings.budget.unit == "share" and not has_corpus:
        raise InputError(
            f"{settings.budget} of the corpus, but there is no corpus",
            key="select.budget",
            hint="null keeps the whole file; 300MB or 50000passages keep the best of it",
        )
