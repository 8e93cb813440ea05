"""What objectives of pre-training are built from: packed texts, the network and the masking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.config import ObjectiveSettings, Settings
from endtask.encoders.network import TASK, TLM_TASK, Network, auxiliary_head
from endtask.io.run_layout import TASKS
from endtask.objectives.masking import Masking, rare_token_weights
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import TaskObjective, task_objective
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_folder
from endtask.tokenization.tokenizer import load_tokenizer

TEXT_FOLDERS = ("selection", "task", "domain", "aligned")
"""The folders of the pack stage that an objective may read; a section's `texts` has the same names."""


@dataclass(frozen=True)
class BuildContext:
    """What objectives of pre-training are built from.

    `left_out` returns which train texts the batch of a step must leave out, since they are held out at this step.
    """

    task: Task
    packed: Path
    network: Network
    settings: Settings
    masking: Masking
    seed: int
    left_out: Callable[[int], NDArray[np.bool_]] | None = None

    def texts(self, section: ObjectiveSettings) -> PackedTexts | None:
        """Return the packed texts that an objective reads; None if there are none."""
        folder = packed_folder(self.packed, section.task) / section.reads
        texts = PackedTexts(folder) if folder.exists() else None
        return texts if texts is not None and len(texts) else None

    def stream(self, name: str, section: ObjectiveSettings, *, masked: bool = True) -> TextStream:
        """Return the batches of an objective by its settings and those of pre-training."""
        texts, train = self.texts(section), self.settings.pretrain
        assert texts is not None
        return TextStream(
            name,
            texts,
            self.network,
            batch_size=section.batch_size or train.batch_size,
            seed=self.seed,
            masking=self.masking if masked else None,
            left_out=self.left_out if section.reads_train else None,
        )

    def task_objective(self, name: str, section: ObjectiveSettings, *, masked: bool) -> TaskObjective:
        """Return the loss of the end task through pre-training's head, or of an auxiliary task through its own."""
        task = self.task if section.task is None else self.task.auxiliary[section.task]
        head = pretrain_head(self.settings) if section.task is None else auxiliary_head(section.task)
        return task_objective(task, name, self.stream(name, section, masked=masked), head=head)


def pretrain_head(settings: Settings) -> str:
    """Return the name of the head through which pre-training learns the task."""
    return TLM_TASK if settings.has_tlm_head else TASK


def masking_of(packed: Path, settings: Settings) -> Masking:
    """Return how pre-training masks tokens."""
    tokenizer, train = load_tokenizer(packed / "tokenizer"), settings.pretrain
    weights = None
    if train.mask_rare_exponent > 0:
        auxiliary = sorted((packed / TASKS).glob("*/task"))
        folders = [*(packed / name for name in TEXT_FOLDERS), *auxiliary]
        parts = [PackedTexts(folder) for folder in folders if folder.exists()]
        counts = sum((part.token_counts(len(tokenizer)) for part in parts), np.zeros(len(tokenizer), dtype=np.int64))
        weights = rare_token_weights(counts, train.mask_rare_exponent)
    return Masking(
        train.mask_probability,
        tokenizer.mask_token_id,
        len(tokenizer),
        tuple(tokenizer.all_special_ids),
        weights=weights,
    )
