"""Every target's gradient under the model that did not see it, and the products of candidates with all of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.gradients.costs import Work
from endtask.gradients.engine import GradientEngine
from endtask.gradients.losses import masked_lm_losses, task_losses
from endtask.gradients.options import Options
from endtask.gradients.plan import make_plan
from endtask.gradients.targets import Targets
from endtask.gradients.units import Units
from endtask.models.network import MASKED_LM, Network
from endtask.models.weights import load_weights
from endtask.select.influence.candidates import CandidateUnits
from endtask.select.influence.columns import class_names, memberships
from endtask.select.influence.fit import Fold
from endtask.select.influence.greedy import Sketches, unit_length
from endtask.select.influence.limits import refuse_large
from endtask.select.influence.readings import Prepared, Reader
from endtask.select.influence.scoring_settings import seed_of

_SAMPLE = 64
"""Candidates and targets whose rows are counted before the way to the products is chosen."""


@dataclass(frozen=True)
class Judge:
    """One set of weights, and the targets' gradients under it."""

    engine: GradientEngine
    targets: Targets
    sketches: Sketches
    class_sketches: Tensor | None  # the mean over each class's targets, for greedy matching: (classes, size)


class Scorer:
    """Scores units of candidates against all targets: the columns are the targets of one fold after the other's."""

    def __init__(self, folds: list[Fold], units: CandidateUnits, *, memory: int, compiled: bool = False) -> None:
        self._own, self._compiled = folds[0].settings.select.influence, compiled
        self._memory = memory // sum(len(fold.kept_weights()) for fold in folds)
        self.folds, self.place = folds, folds[0].place
        self._class_targets = sum(memberships(fold.task.dev, class_names(fold.task)).sum(axis=0) for fold in folds)
        networks = [[_loaded(fold, path) for path in fold.kept_weights()] for fold in folds]
        self.reader = Reader(folds[0], networks[0][0])
        pairs = zip(folds, networks, strict=True)
        self._judges = [[self._judge(fold, network, units) for network in some] for fold, some in pairs]
        self.columns = sum(judges[0].targets.units.count for judges in self._judges)

    def read(self, prepared: Prepared) -> tuple[Tensor, Tensor | None]:
        """Some units against all columns, means over the checkpoints: (units, columns); and sketches, if matched."""
        by_fold, sketches = [], []
        for judges in self._judges:
            parts = []
            for judge in judges:
                gradients = prepared.gradients(judge.engine, masked_lm_losses)
                parts.append(judge.targets.scores(gradients, self._own.measure))
                if judge.class_sketches is not None:
                    sketches.append(self._scaled(judge.sketches.of(gradients)))
            by_fold.append(torch.stack(parts).mean(0))
        return torch.cat(by_fold, dim=1), torch.cat(sketches, dim=1) if sketches else None

    def class_sketches(self) -> Tensor:
        """The mean gradient of each class that has targets, as the candidates' are sketched: (classes, size)."""
        found = [judge.class_sketches for judges in self._judges for judge in judges]
        everything = torch.cat([self._scaled(one) for one in found if one is not None], dim=1)
        return everything[torch.from_numpy(np.flatnonzero(self._class_targets)).to(everything.device)]

    def _scaled(self, sketches: Tensor) -> Tensor:
        return unit_length(sketches) if self._own.measure == "cosine" else sketches

    @property
    def flops_per_token(self) -> float:
        """About what a candidate's token costs: a pass forward, and backward through the layers that are compared.

        Counted as training is, by 2 x parameters forward and 4 x parameters backward.
        """
        judge = self._judges[0][0]
        network, layers = judge.engine.network, judge.engine.network.config.num_hidden_layers
        parts = (network.body, network.heads[MASKED_LM])
        parameters = sum(weight.numel() for part in parts for weight in part.parameters())
        each_layer = 12 * network.config.hidden_size**2
        passed_back = parameters - (each_layer * (layers - 1) if self._own.layers == ("last",) else 0)
        passes = sum(map(len, self._judges)) * self._own.masks
        products = 2.0 * judge.targets.plan.multiply_adds / self._own.max_length
        return float(passes * (2.0 * parameters + 4.0 * passed_back + products))

    def record(self) -> dict[str, Any]:
        """For the manifest: how the products are computed, and what a target takes."""
        targets = self._judges[0][0].targets
        return {"columns": self.columns, "bytes_per_target": targets.bytes_per_target, "plan": targets.plan.record()}

    def _judge(self, fold: Fold, network: Network, units: CandidateUnits) -> Judge:
        engine = GradientEngine(network, self._own.layers, fold.place, compiled=self._compiled)
        texts, belongs = fold.targets, memberships(fold.task.dev, class_names(fold.task))
        groups = Units.consecutive(len(texts), self._own.target_batch)
        prepared = self.reader.targets(fold.answers(network))
        found = ((numbers, one.gradients(engine, task_losses)) for numbers, one in prepared)
        first = next(found)
        few = self.reader.candidates(units, np.arange(min(_SAMPLE, units.count)))
        sample = few.gradients(engine, masked_lm_losses)
        work = Work(units.count, len(texts), groups.count)
        options = Options(rank=self._own.rank, memory=self._memory)
        plan = make_plan(sample, first[1], work, options)
        refuse_large(plan, len(texts), self._memory)
        targets = Targets(plan, groups)
        sketches = Sketches(self._own.greedy_size, seed_of(fold.settings))
        means = _ClassMeans(belongs.sum(axis=0))
        for numbers, gradients in chain((first,), found):
            targets.add(gradients, numbers)
            if self._own.choice == "greedy":
                means.add(self._scaled(sketches.of(gradients)), belongs[numbers])
        return Judge(engine, targets, sketches, means.total)


def _loaded(fold: Fold, path: Path) -> Network:
    network = fold.network()
    load_weights(path, network)
    return network


class _ClassMeans:
    """Means over the targets of each class, which come in any order."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._counts = torch.from_numpy(counts)
        self.total: Tensor | None = None

    def add(self, vectors: Tensor, belongs: NDArray[np.int64]) -> None:
        """Add the vectors of some targets, (targets, size), by the classes that they belong to, (targets, classes)."""
        shares = torch.from_numpy(belongs) / self._counts.clamp(min=1)
        part = shares.to(vectors).T @ vectors
        self.total = part if self.total is None else self.total + part
