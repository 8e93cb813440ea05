"""What would stop a run after an hour of reading, met before it starts."""

from __future__ import annotations

from endtask.errors import InputError
from endtask.select.choose import refuse_impossible
from endtask.select.domain import refuse_missing_texts, refuse_unknown_sources
from endtask.settings import Settings
from endtask.settings.objectives import refuse_lone_objective
from endtask.task import Task


def check_ahead(
    task: Task, settings: Settings, *, has_selection: bool = False, has_corpus: bool = True, trains: bool = True
) -> None:
    """Raise the error that a later stage would raise; reads no corpus and writes nothing.

    `has_selection` says that the file to import the selection from need not be there: it was read elsewhere. Without
    `has_corpus` neither need the corpus, for the same reason. Without `trains` the device need not be there either:
    what is prepared here may be trained on another machine.
    """
    if not has_selection:
        refuse_impossible(settings.select, has_corpus=bool(settings.corpus.sources), labels=task.labels)
    _check_text(task, settings)
    _check_kind(task, settings)
    _check_model(task, settings)
    _check_training(settings, has_corpus=has_corpus)
    _check_folds(task, settings)
    if trains:
        _check_machine(settings)
    _check_aligned(task, settings)
    if settings.select.uses_influence and not has_selection:
        from endtask.select.influence.fit import refuse_impossible_influence

        refuse_impossible_influence(task, settings)


def _check_text(task: Task, settings: Settings) -> None:
    from endtask.text.marks import check_marks
    from endtask.text.pack import refuse_windows_of_pairs

    refuse_windows_of_pairs(task, settings)
    check_marks(settings.tokenizer.marks, settings.tokenizer.kind)


def _check_kind(task: Task, settings: Settings) -> None:
    """Refuse what has no meaning for the kind of any task that is scored."""
    from endtask.evaluate.measures import measure_of

    evaluate = settings.evaluate
    scored = {task.kind, *(task.further[name].kind for name in settings.scored_tasks)}
    asked = {
        "evaluate.positive_label": (evaluate.positive_label is not None, ("text", "pair"), {task.kind}),
        "evaluate.threshold": (evaluate.threshold != 0.5, ("labels",), scored),
    }
    for key, (is_set, kinds, found) in asked.items():
        if is_set and found.isdisjoint(kinds):
            known = f"it is for tasks of kind {' or '.join(kinds)}"
            given = " or ".join(map(repr, sorted(found)))
            raise InputError(f"has no meaning for a task of kind {given}", key=key, hint=known)
    measure_of(task, settings.evaluate)


def _check_model(task: Task, settings: Settings) -> None:
    if settings.model.path is None:
        from endtask.models.sizes import shape_of

        shape_of(settings.model)
    else:
        from endtask.train.start import check_checkpoint

        check_checkpoint(task, settings)


def _check_training(settings: Settings, *, has_corpus: bool) -> None:
    refuse_missing_texts(settings)
    if has_corpus:
        refuse_unknown_sources(settings)
    if settings.stage1 == "none":
        return
    if not settings.objectives_with_text:
        raise InputError("inf leaves nothing to train on: there is no external text", key="train.rho1")
    refuse_lone_objective(settings.objectives_with_text, settings.train.weighting)
    if settings.train.reselect.every is not None and not settings.has_selection:
        raise InputError("there is no external text to choose from", key="train.reselect.every")


def _check_folds(task: Task, settings: Settings) -> None:
    """Refuse to hold out parts of a train split that cannot be cut."""
    from endtask.train.meta_folds import groups_in, refuse_single_group

    train = settings.train
    by_folds = {
        "train.meta.split": train.weighs_by_folds,
        "train.reselect.every": train.reselect.every is not None,
    }
    if settings.stage1 == "none" or not any(by_folds.values()):
        return
    groups = groups_in(task.train)
    for key in (key for key, asked in by_folds.items() if asked):
        refuse_single_group(groups, key)


def _check_machine(settings: Settings) -> None:
    """Refuse a device that this machine lacks, and libraries that curves are to be sent through."""
    if settings.device != "auto" or settings.model.attention != "auto":
        from endtask.train.device import check_place

        check_place(settings)
    if settings.report_to:
        from endtask.train.trackers import find_libraries

        find_libraries(settings.report_to)


def _check_aligned(task: Task, settings: Settings) -> None:
    """Refuse marks that would fall into several tokens, and a head that the task cannot start from."""
    if not settings.reads_aligned:
        return
    kinds = {one.kind for one in settings.used_objectives.values()}
    aligned, tokenizer = settings.aligned, settings.tokenizer
    if "aligned" in kinds and aligned.recipe == "marked_relation" and settings.learns_tokenizer:  # others may have them
        for mark in aligned.marks:
            if len(mark) > 1 and mark not in tokenizer.marks:
                raise InputError(
                    f"{mark!r} is no token of its own", key="aligned.marks", hint="name it under tokenizer.marks too"
                )
    if aligned.keep_head and settings.stage2 == "finetune":
        from endtask.train.kept_head import kept_objective

        kept_objective(task.kind, task.labels, settings)
