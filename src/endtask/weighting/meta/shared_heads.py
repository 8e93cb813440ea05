"""Heads that several objectives learn, under weights that the loop is told only once all gradients are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from endtask.objectives.base import Objective
from endtask.training.module_gradients import ModuleGradients


class SharedHeads:
    """Mixes the gradients of a head's objectives as these weigh among themselves.

    How fast a head learns has nothing to do with what its objectives weigh (TARTAN, Algorithm 1). Which of several it
    learns has: a head that learned all of them alike would be the wrong one for the one that the encoder learns.
    """

    def __init__(self, heads: Any, objectives: Mapping[str, Objective]) -> None:
        learners: dict[str, list[str]] = {}
        for name, objective in objectives.items():
            for head in objective.heads:
                learners.setdefault(head, []).append(name)
        self._learners = {head: names for head, names in learners.items() if len(names) > 1}
        self._gradients = {head: ModuleGradients(heads[head]) for head in self._learners}

    def start(self) -> None:
        """Forget the last step's gradients."""
        for gradients in self._gradients.values():
            gradients.start()

    def collect(self, objective: str) -> None:
        """Take the gradients that an objective has left in its heads."""
        for head, names in self._learners.items():
            if objective in names:
                self._gradients[head].collect(objective)

    def spread(self, weights: Mapping[str, Tensor]) -> None:
        """Put their mixes back, by the weights of all objectives; a head that nobody has read stays without one."""
        for head, names in self._learners.items():
            if self._gradients[head].by_objective:
                total = torch.stack([weights[name] for name in names]).sum()
                self._gradients[head].spread({name: weights[name] / total for name in names})
