"""Which texts and which split each part of training reads, and whether it sees labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from endtask.config.objectives import ObjectiveSettings
from endtask.config.root import Settings
from endtask.config.training import RESELECTION_FOLDS

_SELECTION = "selection"
_DEV_MAY_CHOOSE = {
    _SELECTION: ("the texts of the selection", "select.targets=folds"),
    "learned weights": ("the weights of objectives", "pretrain.weighting.split=folds"),
}
"""What labels of dev choose where dev validates a part of training, and the setting that validates on train."""
_TEXTS = {
    "task": "the task's texts",
    "selection": "the selection",
    "domain": "the domain",
    "aligned": "the aligned sources",
}


@dataclass(frozen=True)
class DataUse:
    """What a part of training does with data; `labels` says whether it sees those of its split."""

    part: str
    learns: str
    reads: str
    split: str
    labels: bool


def data_usage(
    settings: Settings, *, groups: int | None = None, absent: Collection[str] = frozenset()
) -> tuple[DataUse, ...]:
    """Return every part of training that reads data, in the order of training.

    `groups` of train stay together, so that there are no more folds than groups; None: unknown.
    `absent` objectives have no text to read, and are left out as they are in training.

    >>> [(use.part, use.split, use.labels) for use in data_usage(Settings())]
    [('corpus', '-', False), ('task', 'train', True), ('fine-tuning', 'train', True), ('best step', 'dev', True)]
    """
    uses = (*_selection(settings), *_pretraining(settings, groups), *_finetuning(settings))
    return tuple(use for use in uses if use.part not in absent)


def chosen_by_dev(uses: Iterable[DataUse]) -> tuple[str, ...]:
    """Return warnings about dev scores where labels of dev choose more than the best step.

    >>> chosen_by_dev(data_usage(Settings()))
    ()
    """
    chosen = [use.part for use in uses if use.part in _DEV_MAY_CHOOSE and use.split.endswith("dev")]
    return tuple(
        f"labels of dev choose {what}, so dev scores are no longer those of unseen data; {setting} uses train instead"
        for what, setting in map(_DEV_MAY_CHOOSE.__getitem__, chosen)
    )


def data_usage_lines(uses: tuple[DataUse, ...]) -> Iterator[str]:
    """Yield the lines of a table for the terminal."""
    rows = [("objective", "learns", "reads", "split", "labels")]
    rows += [(use.part, use.learns, use.reads, use.split, "yes" if use.labels else "no") for use in uses]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _selection(settings: Settings) -> Iterator[DataUse]:
    """Yield the selectors that read labels; the others read the texts of train at most."""
    uses = (selector.data_usage() for selector in settings.select.part.parts())
    yield from (use for use in uses if use is not None)


def selection_use(learns: str, split: str) -> DataUse:
    """Return how a selector uses the labels of the task."""
    return DataUse(_SELECTION, learns, _TEXTS["task"], split, True)


def _pretraining(settings: Settings, groups: int | None) -> Iterator[DataUse]:
    train = settings.pretrain
    if settings.skip_pretraining:
        return
    for name, objective in settings.used_objectives.items():
        yield objective_data_use(name, objective)
    yield from train.weighting.part.data_usage(groups)
    if train.reselect.every is not None:
        folds = train.weighting.part.number_of_folds or RESELECTION_FOLDS
        yield DataUse("re-selection", "which texts to read", _TEXTS["task"], held_out_by_fold(folds, groups), True)
    if train.eval_steps is not None:
        yield DataUse("best step of pre-training", "when to stop", _TEXTS["task"], "dev", True)


def held_out_by_fold(folds: int, groups: int | None) -> str:
    """Return the split of parts of train that are held out in turn."""
    return f"train, 1/{folds if groups is None else min(folds, groups)} of it held out in turn"


def _finetuning(settings: Settings) -> Iterator[DataUse]:
    if not settings.skip_finetuning:
        yield DataUse("fine-tuning", "the task", _TEXTS["task"], "train", True)
        for name in settings.scored_tasks:
            yield DataUse(f"fine-tuning of {name}", f"the task {name}", _texts_of("task", name), "train", True)
        yield DataUse("best step", "when to stop", _TEXTS["task"], "dev", True)


def objective_data_use(name: str, objective: ObjectiveSettings) -> DataUse:
    """Return what an objective of pre-training reads; corpus text belongs to no split."""
    of_task = objective.reads == "task"
    learns = objective.part_class.meaning().replace("`", "")
    if objective.learned_task is not None:
        learns = learns.replace("the task", f"the task {objective.task}", 1)
    reads = _texts_of(objective.reads, objective.task)
    return DataUse(name, learns, reads, "train" if of_task else "-", bool(objective.part_class.labels))


def _texts_of(reads: str, task: str | None) -> str:
    return _TEXTS[reads] if task is None else f"the texts of {task}"
