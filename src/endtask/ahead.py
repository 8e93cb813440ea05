"""What would stop a run after an hour of reading, met before it starts."""

from __future__ import annotations

from endtask.errors import InputError
from endtask.select.choose import refuse_impossible
from endtask.settings import Settings
from endtask.task import Task


def check_ahead(task: Task, settings: Settings, *, has_selection: bool = False) -> None:
    """Raise the error that a later stage would raise; reads no corpus and writes nothing.

    `has_selection` says that the file to import the selection from need not be there: it was read elsewhere.
    """
    if not has_selection:
        refuse_impossible(settings.select, has_corpus=bool(settings.corpus.sources), labels=task.labels)
    _check_text(task, settings)
    _check_model(task, settings)
    _check_training(settings)


def _check_text(task: Task, settings: Settings) -> None:
    from endtask.text.marks import check_marks
    from endtask.text.pack import refuse_windows_of_pairs

    refuse_windows_of_pairs(task, settings)
    check_marks(settings.tokenizer.marks, settings.tokenizer.kind)


def _check_model(task: Task, settings: Settings) -> None:
    if settings.model.path is None:
        from endtask.models.sizes import shape_of

        shape_of(settings.model)
    else:
        from endtask.train.start import check_checkpoint

        check_checkpoint(task, settings)


def _check_training(settings: Settings) -> None:
    selector = settings.select.selector
    no_text = selector == "none" or (not settings.corpus.sources and selector != "imported")
    if settings.stage1 == "joint" and settings.train.rho1 == "inf" and no_text:
        raise InputError("inf leaves nothing to train on: there is no external text", key="train.rho1")
    if settings.device != "auto" or settings.model.attention != "auto":
        from endtask.train.device import check_place

        check_place(settings)
    if settings.report_to:
        from endtask.train.trackers import find_libraries

        find_libraries(settings.report_to)
