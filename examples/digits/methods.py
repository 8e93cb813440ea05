"""The methods: train without auxiliary images, on them before the task, or on both together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.config.training import PhaseSettings
from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import BuiltObjective
from endtask.seeds import derive, generator
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.weighting.base import Rule
from endtask.weighting.equal import Equal
from endtask.weighting.folds import Folds
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.rule import Meta
from examples.digits.images import Images, ImageTask
from examples.digits.network import AUXILIARY, TASK, HeldOutImages, ImageClasses, ImageNetwork

METHODS = ("task only", "agnostic", "mt", "meta")


@dataclass(frozen=True)
class Plan:
    """Steps, batches and rates; the paper's image experiment has batches of 64, a rate of 3e-4 and an eta of 5e-2."""

    steps: int = 600
    finetune_steps: int = 300
    score_every: int = 30
    batch_size: int = 64
    learning_rate: float = 1e-3
    meta: MetaConfig = field(default_factory=lambda: MetaConfig(folds=5))
    fold_steps: int = 50


@dataclass(frozen=True)
class Outcome:
    """Test predictions of the weights that are best on dev, their dev score, and the task's weight at each step."""

    predicted: NDArray[np.int64]
    dev_accuracy: float
    task_weights: list[float]


def learn(method: str, task: ImageTask, plan: Plan, *, seed: int, device: torch.device) -> Outcome:
    """Train by a method, fine-tune on the task alone, and return the outcome of the best weights on dev.

    All methods start from the same random weights. Pre-training without the task (agnostic) has no dev scores.
    """
    trainer = _Trainer(task, plan, seed, DeviceContext(device))
    objectives = {"task only": [TASK], "agnostic": [AUXILIARY], "mt": [TASK, AUXILIARY], "meta": [TASK, AUXILIARY]}
    weights = trainer.phase(objectives[method], plan.steps, learned=method == "meta", scored=method != "agnostic")
    trainer.phase([TASK], plan.finetune_steps, learned=False, scored=True)
    return trainer.outcome(weights)


class _Trainer:
    """A network in training, with its best weights on dev."""

    def __init__(self, task: ImageTask, plan: Plan, seed: int, context: DeviceContext) -> None:
        self._task, self._plan, self._seed, self._context = task, plan, seed, context
        counts = {TASK: int(task.train.labels.max()) + 1, AUXILIARY: int(task.auxiliary.labels.max()) + 1}
        network = ImageNetwork(task.train.pixels.shape[1:], counts, seed=derive(seed, "weights"))
        self._network = network.to(context.device)
        self._best: tuple[float, dict[str, Any]] = (-1.0, {})

    def phase(self, names: list[str], steps: int, *, learned: bool, scored: bool) -> list[float]:
        """Train some objectives together; return the task's weight at each step if weights are learned."""
        folds = self._folds() if learned and self._plan.meta.split == "folds" else None
        left_out = folds.held_out if folds else None
        objectives: dict[str, BuiltObjective] = {name: self._objective(name, left_out) for name in names}
        phase = self._phase_of(objectives, self._meta(names, folds) if learned else Equal(*names), steps)
        curve = []
        for record in train(phase, build_optimizer(phase)):
            if learned:
                curve.append(record.losses[f"weight/{TASK}"])
            if scored and (record.step % self._plan.score_every == 0 or record.step == steps):
                self._score()
        return torch.stack(curve).tolist() if curve else []

    def outcome(self, weights: list[float]) -> Outcome:
        """Return the predictions of the best weights on test."""
        accuracy, best = self._best
        self._network.load_state_dict(best)
        return Outcome(self._predict(self._task.test), accuracy, weights)

    def _objective(self, name: str, left_out: Callable[[int], NDArray[np.bool_]] | None) -> ImageClasses:
        images = self._task.train if name == TASK else self._task.auxiliary
        left_out = left_out if name == TASK else None
        seed = derive(self._seed, "batches")
        return ImageClasses(name, images, batch_size=self._plan.batch_size, seed=seed, left_out=left_out)

    def _folds(self) -> Folds:
        numbers = np.arange(len(self._task.train)) % self._plan.meta.folds
        return Folds(generator(self._seed, "folds").permutation(numbers), self._plan.fold_steps)

    def _meta(self, names: list[str], folds: Folds | None) -> Meta:
        settings, classes = self._plan.meta, int(self._task.train.labels.max()) + 1
        held_out = HeldOutImages(
            self._task.train, self._task.dev, folds, classes, settings=settings, seed=derive(self._seed, "held out")
        )
        gradient = HeldOutGradient(
            self._network, held_out, settings=settings, context=self._context, seed=derive(self._seed, "meta")
        )
        return Meta(names, gradient, settings=settings, device=self._context.device)

    def _phase_of(self, objectives: dict[str, BuiltObjective], weighting: Rule, steps: int) -> Phase:
        return Phase(
            network=self._network,
            objectives=objectives,
            weighting=weighting,
            steps=steps,
            settings=PhaseSettings(),
            learning_rate=self._plan.learning_rate,
            seed=self._seed,
            context=self._context,
        )

    def _score(self) -> None:
        accuracy = float((self._predict(self._task.dev) == self._task.dev.labels).mean())
        if accuracy > self._best[0]:
            self._best = (accuracy, copy.deepcopy(self._network.state_dict()))
        self._network.train()

    @torch.inference_mode()
    def _predict(self, images: Images) -> NDArray[np.int64]:
        self._network.eval()
        outputs = self._network.heads[TASK](
            self._network.encoder(torch.from_numpy(images.pixels).to(self._context.device))
        )
        predicted: NDArray[np.int64] = outputs.argmax(-1).cpu().numpy()
        return predicted
