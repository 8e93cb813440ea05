"""What would stop a run after an hour of reading, met before it starts."""

from __future__ import annotations

from endtask.config import Settings
from endtask.errors import InputError
from endtask.selectors.domain import check_sources_known, check_texts_exist
from endtask.task import Task


def preflight(
    task: Task, settings: Settings, *, has_selection: bool = False, has_corpus: bool = True, trains: bool = True
) -> None:
    """Raise the error that a later stage would raise; reads no corpus and writes nothing.

    `has_selection` says that the file to import the selection from need not be there: it was read elsewhere. Without
    `has_corpus` neither need the corpus, for the same reason. Without `trains` the device need not be there either:
    what is prepared here may be trained on another machine.
    """
    if not has_selection:
        has_sources = bool(settings.corpus.sources)
        settings.select.part.preflight(task, settings, has_corpus=has_sources, labels=task.labels)
    _check_text(task, settings)
    _check_kind(task, settings)
    _check_model(task, settings)
    _check_training(settings, has_corpus=has_corpus)
    _check_folds(task, settings)
    if trains:
        _check_machine(settings)
    _check_aligned(task, settings)


def _check_text(task: Task, settings: Settings) -> None:
    from endtask.tokenization.entity_markers import check_markers
    from endtask.tokenization.packing import check_no_windows_of_pairs

    check_no_windows_of_pairs(task, settings)
    check_markers(settings.tokenizer.entity_markers, settings.tokenizer.kind)


def _check_kind(task: Task, settings: Settings) -> None:
    """Refuse what has no meaning for the kind of any task that is scored."""
    from endtask.evaluation.task_metrics import measure_of

    evaluate = settings.evaluate
    scored = {task.kind, *(task.auxiliary[name].kind for name in settings.scored_tasks)}
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
        from endtask.encoders.sizes import shape_of

        shape_of(settings.model)
    else:
        from endtask.training.initial_network import check_checkpoint

        check_checkpoint(task, settings)


def _check_training(settings: Settings, *, has_corpus: bool) -> None:
    check_texts_exist(settings)
    if has_corpus:
        check_sources_known(settings)
    if settings.skip_pretraining:
        return
    if not settings.objectives_with_text:
        raise InputError("inf leaves nothing to train on: there is no corpus text", key="pretrain.weighting.rho1")
    settings.pretrain.weighting.part.check_texts(tuple(settings.objectives_with_text))
    for name, section in settings.objectives_with_text.items():
        section.part.preflight(name, settings)
    if settings.pretrain.reselect.every is not None and not settings.has_selection:
        raise InputError("there is no corpus text to choose from", key="pretrain.reselect.every")


def _check_folds(task: Task, settings: Settings) -> None:
    """Refuse to hold out parts of a train split that cannot be cut."""
    from endtask.weighting.meta.folds import check_several_groups, groups_in

    if settings.skip_pretraining:
        return
    settings.pretrain.weighting.part.preflight(task)
    if settings.pretrain.reselect.every is not None:
        check_several_groups(groups_in(task.train), "pretrain.reselect.every")


def _check_machine(settings: Settings) -> None:
    """Refuse a device that this machine lacks, and libraries that curves are to be sent through."""
    if settings.device != "auto" or settings.model.attention != "auto":
        from endtask.training.device import check_device

        check_device(settings)
    if settings.report_to:
        from endtask.training.loggers import find_libraries

        find_libraries(settings.report_to)


def _check_aligned(task: Task, settings: Settings) -> None:
    """Refuse marks that would fall into several tokens, and a head that the task cannot start from."""
    if not settings.reads_aligned:
        return
    kinds = {one.kind for one in settings.used_objectives.values()}
    aligned, tokenizer = settings.aligned, settings.tokenizer
    if "aligned" in kinds and aligned.recipe == "marked_relation" and settings.learns_tokenizer:  # others may have them
        for mark in aligned.entity_markers:
            if len(mark) > 1 and mark not in tokenizer.entity_markers:
                raise InputError(
                    f"{mark!r} is no token of its own",
                    key="aligned.entity_markers",
                    hint="name it under tokenizer.entity_markers too",
                )
    if aligned.keep_head and not settings.skip_finetuning:
        from endtask.training.reused_head import kept_objective

        kept_objective(task.kind, task.labels, settings)
