"""Raise errors before a run starts that would otherwise stop it late."""

from __future__ import annotations

from endtask.config import Settings
from endtask.errors import InputError
from endtask.selectors.domain import check_sources_known
from endtask.task import Task


def preflight(
    task: Task, settings: Settings, *, has_selection: bool = False, has_corpus: bool = True, trains: bool = True
) -> None:
    """Raise the error that a later stage would raise, without reading the corpus or writing anything.

    With `has_selection` the selector's file is not needed: a bundle holds what the selector read from it. Without
    `has_corpus` the corpus is not read. Without `trains` the device is not checked: another machine may train.
    """
    if not has_selection:
        settings.select.part.preflight(task, settings, has_corpus=bool(settings.corpus.sources))
    _check_text(task, settings)
    _check_task_type(task, settings)
    _check_model(task, settings)
    _check_training(settings, has_corpus=has_corpus)
    _check_folds(task, settings)
    if trains:
        _check_machine(settings)
    _check_aligned(task, settings)


def _check_text(task: Task, settings: Settings) -> None:
    from endtask.tokenization.packing import check_no_windows_of_pairs
    from endtask.tokenization.special_tokens import check_markers

    check_no_windows_of_pairs(task, settings)
    check_markers(settings.tokenizer.markers, settings.tokenizer.kind)


def _check_task_type(task: Task, settings: Settings) -> None:
    """Raise `InputError` for evaluation settings that apply to no scored task."""
    from endtask.evaluation.task_metrics import measure_of
    from endtask.export.linear_folder import check_fallback

    evaluate = settings.evaluate
    if evaluate.positive_label is not None and task.task_type.form != "classes":
        reason = f"has no meaning for a task of type {task.type!r}"
        raise InputError(reason, key="evaluate.positive_label", hint="it is for tasks of type text or pair")
    scored = [task, *(task.auxiliary[name] for name in settings.scored_tasks)]
    if evaluate.threshold != 0.5 and not any(scored_task.task_type.has_threshold for scored_task in scored):
        types = " or ".join(sorted({repr(scored_task.type) for scored_task in scored}))
        reason = f"has no meaning for a task of type {types}"
        raise InputError(reason, key="evaluate.threshold", hint="it is for tasks of type multilabel")
    without_class = next(
        (other for other in scored if not other.task_type.one_label or other.task_type.per_token), None
    )
    if settings.finetune.contrastive and without_class is not None:
        reason = f"compares texts by their class, which a task of type {without_class.type!r} does not have"
        raise InputError(reason, key="finetune.contrastive", hint="leave it out")
    measure_of(task, settings.evaluate)
    check_fallback(task, settings)


def _check_model(task: Task, settings: Settings) -> None:
    if settings.model.path is None:
        from endtask.encoders.base import shape_of
        from endtask.encoders.config_sizes import check_memory

        check_memory(vars(shape_of(settings.model)))
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
        reason = f"there is no corpus text, and {settings.without_task} leaves out the task"
        raise InputError(f"nothing is left to train on: {reason}", key="pretrain.objectives")
    settings.pretrain.weighting.part.check_texts(tuple(settings.objectives_with_text))
    for name, section in settings.objectives_with_text.items():
        section.part.preflight(name, settings)
    if settings.pretrain.reselect.every is not None and not settings.has_selection:
        raise InputError("there is no corpus text to choose from", key="pretrain.reselect.every")


def check_texts_exist(settings: Settings) -> None:
    """Raise `InputError` for an objective of pre-training that has no text to read."""
    if settings.skip_pretraining or settings.pretrain.skips_objectives_without_text:
        return
    available = {"selection": settings.has_selection, "domain": bool(settings.corpus.sources)}
    for name, objective in settings.pretrain.objectives.items():
        if objective.weight and not available.get(objective.reads, True):
            hint = f"--corpus path/to/text, or leave the objective out: pretrain.objectives.{name}.weight=0"
            message = f"there is no {objective.reads} to read"
            raise InputError(message, key=f"pretrain.objectives.{name}.texts", hint=hint)


def _check_folds(task: Task, settings: Settings) -> None:
    """Raise `InputError` if training needs folds of a train split that cannot be cut."""
    from endtask.weighting.folds import check_several_groups, groups_in

    if settings.skip_pretraining:
        return
    settings.pretrain.weighting.part.preflight(task)
    if settings.pretrain.reselect.every is not None:
        check_several_groups(groups_in(task.train), "pretrain.reselect.every")


def _check_machine(settings: Settings) -> None:
    """Raise `InputError` for a device that this machine lacks, and for missing logging libraries."""
    if settings.device != "auto" or settings.model.attention != "auto":
        from endtask.training.device import check_device

        check_device(settings)
    if settings.distributed == "fsdp":
        from endtask.training.distributed import check_distributed

        check_distributed(settings)
    if settings.report_to:
        from endtask.training.loggers import check_trackers

        check_trackers(settings.report_to)


def _check_aligned(task: Task, settings: Settings) -> None:
    """Raise `InputError` if fine-tuning starts from an aligned objective's head and no such head fits the task."""
    if settings.finetune.head == "aligned" and not settings.skip_finetuning:
        from endtask.training.initial_network import reused_objective

        reused_objective(task.task_type, task.labels, settings)
