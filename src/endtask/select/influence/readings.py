"""Texts made ready for the engine: laid out, and under the masks that belong to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.gradients.engine import GradientEngine
from endtask.gradients.losses import TextLosses
from endtask.gradients.readings import Readings
from endtask.gradients.rows import Gradients
from endtask.gradients.scoring import like_lengths
from endtask.models.batch import TextBatch, lay_out
from endtask.models.network import Network
from endtask.objectives.masking import Masking
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.text_masks import mask_texts
from endtask.seeds import derive
from endtask.select.influence.candidates import CandidateUnits, UnitTexts
from endtask.select.influence.fit import Fold
from endtask.select.influence.scoring_settings import seed_of
from endtask.text.packed import PackedTexts

_USUALLY_MASKED = 0.25


def tokens_at_once(device: torch.device, masked: float) -> int:
    """How many tokens a forward pass reads: enough to fill the device, less where the logits of many are wanted."""
    return int((1 << 16) * min(1.0, _USUALLY_MASKED / masked)) if device.type == "cuda" else 1 << 12


@dataclass(frozen=True)
class Prepared:
    """The same texts under each of their masks; `units` says how they make up units where some unit has several."""

    readings: Readings
    units: UnitTexts | None = None

    def pin(self) -> Prepared:
        """The same in memory that a GPU can copy from while others work."""
        return replace(self, readings=self.readings.pin())

    def gradients(self, engine: GradientEngine, losses: TextLosses) -> Gradients:
        """The mean over the masks, and over the texts of each unit by their shares."""
        found = self.readings.gradients(engine, losses)
        if self.units is None:
            return found
        device = next(iter(found.blocks.values()))[0].owners.device
        owners, shares = (torch.from_numpy(one).to(device) for one in (self.units.owners, self.units.shares))
        return found.merged(owners, shares, int(self.units.owners[-1]) + 1)


class Reader:
    """Makes batches of texts ready, the same for all scoring models: they share tokenizer and masks (by `seed`)."""

    def __init__(self, fold: Fold, network: Network) -> None:
        self._own, self._network = fold.settings.select.influence, network
        self._masking, self.seed = fold.masking, seed_of(fold.settings)
        share = self._own.score_mask_probability or self._masking.probability
        self._scored = replace(self._masking, probability=share)
        self.most_tokens = tokens_at_once(fold.place.device, share)

    def candidates(self, units: CandidateUnits, which: NDArray[np.int64]) -> Prepared:
        """The texts of some units of candidates."""
        found = units.texts_of(which)
        batch = self._lay_out(units.candidates.texts, found.numbers)
        alone = len(found.numbers) == len(which)
        return Prepared(self._masked(batch, found.numbers, self._scored), None if alone else found)

    def targets(self, asked: TaskObjective) -> Iterator[tuple[NDArray[np.int64], Prepared]]:
        """All targets, some at a time, with their numbers: the longest first, whose memory is planned for."""
        texts = asked.stream.texts
        for numbers in reversed(list(like_lengths(texts.lengths, self.most_tokens))):
            batch = asked.answered(self._lay_out(texts, numbers), numbers)
            # Numbers of targets and of candidates are apart, and so are their masks.
            masked = self._masked(batch, -1 - numbers, self._masking) if self._own.mask_targets else Readings((batch,))
            yield numbers, Prepared(masked)

    def _lay_out(self, texts: PackedTexts, numbers: NDArray[np.int64]) -> TextBatch:
        return lay_out(texts, numbers, self._network.layout(int(texts.lengths[numbers].max())))

    def _masked(self, batch: TextBatch, numbers: NDArray[np.int64], masking: Masking) -> Readings:
        seed = derive(self.seed, "mask", 0)
        return Readings(tuple(mask_texts(batch, numbers, masking, seed, turn) for turn in range(self._own.masks)))
