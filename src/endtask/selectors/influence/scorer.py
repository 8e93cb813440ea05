"""Every target's gradient under the model that did not see it, and the products of candidates with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import TextBatch, lay_out
from endtask.encoders.network import MASKED_LM, Network
from endtask.gradients.engine import GradientEngine, Readings
from endtask.gradients.losses import TextLosses, masked_lm_losses, task_losses
from endtask.gradients.plan import Options, Work, make_plan
from endtask.gradients.rows import Gradients, Units
from endtask.gradients.scoring import like_lengths
from endtask.gradients.targets import Targets
from endtask.objectives.masking import Masking
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.masking import mask_texts
from endtask.seeds import derive
from endtask.selectors.influence.candidates import CandidateUnits, UnitTexts
from endtask.selectors.influence.config import influence_config
from endtask.selectors.influence.fit import Fold, seed_of
from endtask.selectors.influence.limits import check_size
from endtask.tokenization.packed_texts import PackedTexts

_SAMPLE = 64
"""Candidates and targets whose rows are counted before it is decided how targets are stored."""
_USUALLY_MASKED = 0.25


def tokens_at_once(device: torch.device, masked: float) -> int:
    """How many tokens a forward pass reads: enough to fill the device, fewer where the logits of many are needed."""
    return int((1 << 16) * min(1.0, _USUALLY_MASKED / masked)) if device.type == "cuda" else 1 << 12


@dataclass(frozen=True)
class Prepared:
    """The same texts under each of their masks; `units` says how they form units where some unit has several."""

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
    """Lays out texts for the scoring models of all folds, which share tokenizer and masks (by `seed`)."""

    def __init__(self, fold: Fold, network: Network) -> None:
        self._own, self._network = influence_config(fold.settings), network
        self._masking, self.seed = fold.masking, seed_of(fold.settings)
        share = self._own.score_mask_probability
        self._scored = replace(self._masking, probability=share)
        self.most_tokens = tokens_at_once(fold.context.device, share)

    def candidates(self, units: CandidateUnits, which: NDArray[np.int64]) -> Prepared:
        """The texts of some units of candidates."""
        found = units.texts_of(which)
        batch = self._lay_out(units.texts, found.numbers)
        alone = len(found.numbers) == len(which)
        return Prepared(self._masked(batch, found.numbers, self._scored), None if alone else found)

    def targets(self, asked: TaskObjective) -> Iterator[tuple[NDArray[np.int64], Prepared]]:
        """All targets, some at a time, with their indices: the longest first, whose memory is planned for."""
        texts = asked.stream.texts
        for numbers in reversed(list(like_lengths(texts.lengths, self.most_tokens))):
            batch = asked.answered(self._lay_out(texts, numbers), numbers)
            if not self._own.recipe_values.masks_targets:
                yield numbers, Prepared(Readings((batch,)))
            else:  # the keys of targets and of candidates are apart, and so are their masks
                yield numbers, Prepared(self._masked(batch, -1 - numbers, self._masking))

    def _lay_out(self, texts: PackedTexts, numbers: NDArray[np.int64]) -> TextBatch:
        return lay_out(texts, numbers, self._network.layout(int(texts.lengths[numbers].max())))

    def _masked(self, batch: TextBatch, numbers: NDArray[np.int64], masking: Masking) -> Readings:
        seed = derive(self.seed, "mask", 0)
        return Readings(tuple(mask_texts(batch, numbers, masking, seed, turn) for turn in range(self._own.masks)))


@dataclass(frozen=True)
class ScoringModel:
    """A fitted network, and the gradients of its targets."""

    engine: GradientEngine
    targets: Targets


class Scorer:
    """Scores units of candidates against all targets: the columns are the targets of one fold after the other's."""

    def __init__(self, folds: list[Fold], units: CandidateUnits, *, memory: int, compiled: bool = False) -> None:
        self._own, self._compiled = influence_config(folds[0].settings), compiled
        self._memory = memory // len(folds)
        self.folds, self.context = folds, folds[0].context
        networks = [fold.fitted_network() for fold in folds]
        self.reader = Reader(folds[0], networks[0])
        self._models = [self._model(fold, network, units) for fold, network in zip(folds, networks, strict=True)]
        self.columns = sum(model.targets.units.count for model in self._models)

    def read(self, prepared: Prepared) -> Tensor:
        """The scores of some units against all columns: (units, columns)."""
        by_fold = []
        for model in self._models:
            gradients = prepared.gradients(model.engine, masked_lm_losses)
            by_fold.append(model.targets.scores(gradients, self._own.measure))
        return torch.cat(by_fold, dim=1)

    @property
    def flops_per_token(self) -> float:
        """About what a candidate's token costs: a pass forward, and backward through the layers that are compared.

        Counted as training is, by 2 x parameters forward and 4 x parameters backward.
        """
        network, targets = self._models[0].engine.network, self._models[0].targets
        parts = (network.encoder, network.heads[MASKED_LM])
        parameters = sum(weight.numel() for part in parts for weight in part.parameters())
        each_layer = 12 * network.config.hidden_size**2
        below = each_layer * (network.config.num_hidden_layers - 1) if self._own.layers == ("last",) else 0
        passes = len(self._models) * self._own.masks
        products = 2.0 * targets.plan.multiply_adds / self.folds[0].settings.pretrain.max_length
        return float(passes * (2.0 * parameters + 4.0 * (parameters - below) + products))

    def record(self) -> dict[str, Any]:
        """For the manifest: how the targets are stored, and the memory that one takes."""
        targets = self._models[0].targets
        return {"columns": self.columns, "bytes_per_target": targets.bytes_per_target, "plan": targets.plan.record()}

    def _model(self, fold: Fold, network: Network, units: CandidateUnits) -> ScoringModel:
        engine, texts = GradientEngine(network, self._own.layers, fold.context, compiled=self._compiled), fold.targets
        prepared = self.reader.targets(fold.answers(network))
        found = ((numbers, one.gradients(engine, task_losses)) for numbers, one in prepared)
        first = next(found)
        few = self.reader.candidates(units, np.arange(min(_SAMPLE, units.count)))
        sample = few.gradients(engine, masked_lm_losses)
        groups = Units.consecutive(len(texts), self._own.target_batch)
        work = Work(units.count, len(texts), groups.count)
        plan = make_plan(sample, first[1], work, Options(memory=self._memory))
        check_size(plan, len(texts), self._memory)
        targets = Targets(plan, groups)
        for numbers, gradients in chain((first,), found):
            targets.add(gradients, numbers)
        return ScoringModel(engine, targets)
