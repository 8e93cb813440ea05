"""The kinds of objectives that settings can name: how each is made from packed texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.config import ObjectiveSettings, Settings
from endtask.config.objectives import ALIGNED_KINDS
from endtask.encoders.auxiliary_heads import auxiliary_head
from endtask.encoders.network import TASK, TLM_TASK, Network
from endtask.objectives.base import Objective
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.masking import Masking
from endtask.objectives.replaced_tokens import ReplacedTokens
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import JointTask, TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_of
from endtask.training.alignment_objectives import ALIGNED_TEXTS, build_aligned
from endtask.weighting.meta.build import left_out_of_batches, pretrain_folds

FOLDERS = {"selection": "selection", "task": "task", "domain": "domain", ALIGNED_TEXTS: ALIGNED_TEXTS}
"""Where the pack stage leaves the texts that an objective may read."""


@dataclass(frozen=True)
class Ingredients:
    """What objectives of pre-training are made from."""

    task: Task
    packed: Path
    network: Network
    settings: Settings
    masking: Masking
    seed: int
    steps: int | None = None
    """Of the stage, where they are known."""

    def texts(self, asked: ObjectiveSettings) -> PackedTexts | None:
        """The packed texts that an objective reads; None where there are none."""
        folder = packed_of(self.packed, asked.task) / FOLDERS[asked.reads]
        texts = PackedTexts(folder) if folder.exists() else None
        return texts if texts is not None and len(texts) else None

    def stream(self, name: str, asked: ObjectiveSettings, *, masked: bool = True) -> TextStream:
        """The batches of an objective as its settings and those of pre-training say."""
        texts, train = self.texts(asked), self.settings.pretrain
        assert texts is not None
        of_task = train.task_batch_size if asked.reads == "task" else None
        return TextStream(
            name,
            texts,
            self.network,
            batch_size=asked.batch_size or of_task or train.batch_size,
            seed=self.seed,
            masking=self._masking_of(asked) if masked else None,
            left_out=self._left_out if asked.reads_train else None,
        )

    def task_objective(self, name: str, asked: ObjectiveSettings, *, masked: bool) -> TaskObjective:
        """The task on its train texts, through pre-training's head; a auxiliary task, through its own."""
        task = self.task if asked.task is None else self.task.auxiliary[asked.task]
        head = pretrain_head(self.settings) if asked.task is None else auxiliary_head(asked.task)
        return task_objective(task, name, self.stream(name, asked, masked=masked), head=head)

    @cached_property
    def _left_out(self) -> Callable[[int], NDArray[np.bool_]] | None:
        """What nobody may read while it judges the weights of the objectives."""
        folds = pretrain_folds(self.task, self.settings, self.steps)
        return None if folds is None else left_out_of_batches(folds, self.settings)

    def _masking_of(self, asked: ObjectiveSettings) -> Masking:
        own = asked.mask_probability
        return self.masking if own is None else replace(self.masking, probability=own)


Builder = Callable[[str, ObjectiveSettings, Ingredients], Objective]


def _masked_lm(name: str, asked: ObjectiveSettings, given: Ingredients) -> Objective:
    return MaskedLM(name, given.stream(name, asked))


def _task(name: str, asked: ObjectiveSettings, given: Ingredients) -> Objective:
    return given.task_objective(name, asked, masked=False)


def _joint(name: str, asked: ObjectiveSettings, given: Ingredients) -> Objective:
    return JointTask(given.task_objective(name, asked, masked=True), rho2=given.settings.pretrain.rho2)


def _replaced(name: str, asked: ObjectiveSettings, given: Ingredients) -> Objective:
    return ReplacedTokens(name, given.stream(name, asked))


BUILDERS: dict[str, Builder] = {
    "mlm": _masked_lm,
    "task": _task,
    "joint": _joint,
    "replaced": _replaced,
    **dict.fromkeys(ALIGNED_KINDS, build_aligned),
}
"""One per kind of config/objectives.py."""


def pretrain_head(settings: Settings) -> str:
    """The head through which pre-training learns the task."""
    return TLM_TASK if settings.pretrain.task_head == "tlm" else TASK
