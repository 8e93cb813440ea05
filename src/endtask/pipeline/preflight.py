"""What would stop a run after an hour of reading, met before it starts."""

from __future__ import annotations

from endtask.config import Settings
from endtask.config.objectives import check_several_objectives
from endtask.errors import InputError
from endtask.selectors.domain import check_sources_known, check_texts_exist
from endtask.selectors.select import check_selector
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
        check_selector(task, settings, has_corpus=bool(settings.corpus.sources), labels=task.labels)
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
    """Raise for settings that have no meaning for the type of any task that is scored."""
    from endtask.evaluation.task_metrics import measure_of

    evaluate = settings.evaluate
    if evaluate.positive_label is not None and task.task_type.form != "classes":
        reason = f"has no meaning for a task of type {task.type!r}"
        raise InputError(reason, key="evaluate.positive_label", hint="it is for tasks of type text or pair")
    scored = [task, *(task.auxiliary[name] for name in settings.scored_tasks)]
    if evaluate.threshold != 0.5 and not any(one.task_type.has_threshold for one in scored):
        given = " or ".join(sorted({repr(one.type) for one in scored}))
        reason = f"has no meaning for a task of type {given}"
        raise InputError(reason, key="evaluate.threshold", hint="it is for tasks of type multilabel")
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
        raise InputError("inf leaves nothing to train on: there is no corpus text", key="pretrain.rho1")
    check_several_objectives(settings.objectives_with_text, settings.pretrain.weighting)
    if settings.pretrain.reselect.every is not None and not settings.has_selection:
        raise InputError("there is no corpus text to choose from", key="pretrain.reselect.every")


def _check_folds(task: Task, settings: Settings) -> None:
    """Refuse to hold out parts of a train split that cannot be cut."""
    from endtask.weighting.meta.folds import check_several_groups, groups_in

    train = settings.pretrain
    by_folds = {
        "pretrain.meta.split": train.weighs_by_folds,
        "pretrain.reselect.every": train.reselect.every is not None,
    }
    if settings.skip_pretraining or not any(by_folds.values()):
        return
    groups = groups_in(task.train)
    for key in (key for key, asked in by_folds.items() if asked):
        check_several_groups(groups, key)


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

        kept_objective(task.task_type, task.labels, settings)
