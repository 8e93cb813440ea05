"""Which texts and which split each part of training reads, and whether it sees labels: told before and after a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from endtask.settings.objectives import KINDS, ObjectiveSettings
from endtask.settings.reselect import RESELECTION_FOLDS
from endtask.settings.sections import Settings

LEARNED_WEIGHTS = "learned weights"
_SELECTION = "selection"
_DEV_MAY_CHOOSE = {
    _SELECTION: ("the texts of the selection", "select.influence.targets=folds"),
    LEARNED_WEIGHTS: ("the weights of objectives", "train.meta.split=folds"),
}
"""What labels of dev choose where they judge a part of training, and the setting by which train judges it."""
_TEXTS = {
    "task": "the task's texts",
    "selection": "the selection",
    "domain": "the domain",
    "aligned": "the aligned sources",
}


@dataclass(frozen=True)
class Use:
    """What a part of training does with data; `labels` says whether it sees those of its split."""

    part: str
    learns: str
    reads: str
    split: str
    labels: bool


def uses_of(settings: Settings, *, groups: int | None = None, absent: Collection[str] = frozenset()) -> tuple[Use, ...]:
    """Every part of training that reads data, in the order of the work.

    `groups` of train stay together, so that there are no more parts of it to hold out; unset where nobody counted.
    `absent` objectives have no text to read, and are left out as they are in training.

    >>> [(use.part, use.split, use.labels) for use in uses_of(Settings())]
    [('external', '-', False), ('internal', 'train', True), ('fine-tuning', 'train', True), ('best step', 'dev', True)]
    """
    found = (*_selection(settings), *_stage_1(settings, groups), *_stage_2(settings))
    return tuple(use for use in found if use.part not in absent)


def chosen_by_dev(uses: Iterable[Use]) -> tuple[str, ...]:
    """What to tell whoever reads dev scores where labels of dev choose more than the best step.

    >>> chosen_by_dev(uses_of(Settings()))
    ()
    """
    judged = [use.part for use in uses if use.part in _DEV_MAY_CHOOSE and use.split.endswith("dev")]
    return tuple(
        f"labels of dev choose {what}, so dev scores are no longer those of unseen data; {instead} leaves dev alone"
        for what, instead in map(_DEV_MAY_CHOOSE.__getitem__, judged)
    )


def use_lines(uses: tuple[Use, ...]) -> Iterator[str]:
    """A small table for people."""
    rows = [("objective", "learns", "reads", "split", "labels")]
    rows += [(use.part, use.learns, use.reads, use.split, "yes" if use.labels else "no") for use in uses]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _selection(settings: Settings) -> Iterator[Use]:
    """Selectors that read labels; the others read the texts of train at most."""
    select = settings.select
    if select.uses_influence:
        folds = "train, each half judged by a model of the other"
        split = folds if select.influence.targets == "folds" else "train, judged by dev"
        yield Use(_SELECTION, "which texts help", _TEXTS["task"], split, True)
    elif select.per_class:
        yield Use(_SELECTION, "which texts are near a class", _TEXTS["task"], "train", True)


def _stage_1(settings: Settings, groups: int | None) -> Iterator[Use]:
    train = settings.train
    if settings.stage1 == "none":
        return
    for name, one in settings.used_objectives.items():
        yield objective_use(name, one)
    if train.weighting == "meta":
        by_dev = "dev" if train.meta.same_head else "train, judged by dev"  # a head of its own is fitted to train
        split = by_dev if train.meta.split == "dev" else _in_turn(train.meta.folds, groups)
        yield Use(LEARNED_WEIGHTS, "which objectives help", _TEXTS["task"], split, True)
    if train.reselect.every is not None:
        folds = train.meta.folds if train.weighs_by_folds else RESELECTION_FOLDS
        yield Use("re-selection", "which texts to read", _TEXTS["task"], _in_turn(folds, groups), True)
    if train.eval_steps is not None:
        yield Use("best step of stage 1", "when to stop", _TEXTS["task"], "dev", True)


def _in_turn(folds: int, groups: int | None) -> str:
    return f"train, 1/{folds if groups is None else min(folds, groups)} of it held out in turn"


def _stage_2(settings: Settings) -> Iterator[Use]:
    if settings.stage2 == "finetune":
        yield Use("fine-tuning", "the task", _TEXTS["task"], "train", True)
        for name in settings.scored_tasks:
            yield Use(f"fine-tuning of {name}", f"the task {name}", _texts_of("task", name), "train", True)
        yield Use("best step", "when to stop", _TEXTS["task"], "dev", True)


def objective_use(name: str, asked: ObjectiveSettings) -> Use:
    """What an objective of stage 1 reads; corpus text belongs to no split, and the guard keeps dev and test out."""
    of_task = asked.reads == "task"
    learns = KINDS[asked.kind].meaning.replace("`", "")
    if asked.learned_task is not None:
        learns = learns.replace("the task", f"the task {asked.task}", 1)
    reads = _texts_of(asked.reads, asked.task)
    return Use(name, learns, reads, "train" if of_task else "-", KINDS[asked.kind].labels)


def _texts_of(reads: str, task: str | None) -> str:
    return _TEXTS[reads] if task is None else f"the texts of {task}"
